"""What several commands share. Every module beside this package, except `line`, is a command."""
