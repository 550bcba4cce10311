"""What the parts of Brownout cost, measured; each module is a program of its own with a `--help`."""
