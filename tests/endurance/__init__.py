"""Scripts that take minutes and are started by hand (see docs/development.md). pytest collects no tests here."""
