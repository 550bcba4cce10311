"""What each subcommand does; imported only when it is called for."""
