"""Measurements against the libraries that people use today: `python -m benchmarks --help`."""
