"""What the page of a run shows, computed from the run's directory: the story, the system tested, steps, terms."""
