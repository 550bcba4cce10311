"""The operations of clients: shapes, crash-safe writers, readers and tables of a run's record."""
