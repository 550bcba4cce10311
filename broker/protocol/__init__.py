"""The Kafka protocol: messages, record batches and the table of versions. Converts bytes to values and back, no I/O.

`codec` encodes and decodes, `messages` declares, `api` lists what is served, `records` is the format of the log.
"""
