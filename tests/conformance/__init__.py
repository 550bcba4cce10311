"""Rules that are broken on purpose, one line of the source at a time, and the tests that must notice."""
