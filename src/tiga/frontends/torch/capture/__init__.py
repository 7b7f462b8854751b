"""Capture: from `edge` and `node` as users write them to the program that they describe."""
