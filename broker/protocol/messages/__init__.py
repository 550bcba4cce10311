"""The messages, one module per family of APIs.

Names and versions are those of Apache Kafka's schemas, fields in snake_case. Where request and response use one name
for two structures, the response's is `...Result` instead. Where two messages of a module use one name for different
structures, the name of the message is in front of it. Time-outs and throttle times are milliseconds; -1 is the usual
"none" of ids, epochs and offsets.
"""
