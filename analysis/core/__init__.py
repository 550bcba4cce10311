"""The columnar checkers: they read tables and files only, and return findings with witnesses."""
