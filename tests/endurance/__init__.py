"""Scripts that take minutes and are started by hand; docs/development.md says when. pytest collects nothing here."""
