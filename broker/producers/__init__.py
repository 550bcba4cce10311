"""Idempotent producers: the state that a log keeps of them, and the assignment of their ids."""
