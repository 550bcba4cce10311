"""Benchmarks of the parts of Brownout; each module is a program with `--help`. docs/figures.md has the results."""
