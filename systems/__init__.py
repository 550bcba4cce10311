"""The systems under test: what each is told, how it is started, and how it is looked at from outside."""
