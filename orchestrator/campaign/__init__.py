"""What is to be run: the campaign file and its plan."""
