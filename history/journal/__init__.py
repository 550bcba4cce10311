"""The journal of a run: its writer, its reader, and what its lines say about services and time."""
