"""Benchmarks of the compiler itself, each a module to run by its name."""
