"""What is to be run: the campaign file and its plan, the store that keeps runs, the gate that decides over them."""
