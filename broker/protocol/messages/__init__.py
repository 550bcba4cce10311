"""The messages, one module per API, with the names and versions of Apache Kafka's schemas (fields in snake_case).

Where request and response use one name for two structures, the response's is `...Result` instead. Time-outs and
throttle times are milliseconds; -1 is the usual "none" of ids, epochs and offsets.
"""
