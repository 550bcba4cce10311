"""Idempotent producers: what a log remembers of them, and how they get their ids."""
