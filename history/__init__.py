"""The record of a run: what clients did, which faults were injected, and when.

This is the lowest floor. Clients write operations with `history.record.writer.OperationWriter`, or in any language as
JSON lines (docs/operations.md). The run loop writes a `history.journal.writer.Journal`. The analysis starts from
`history.reader.read_run`. The package itself imports nothing: Arrow takes a third of a second to load, and a reader of
a campaign file does not need it.
"""
