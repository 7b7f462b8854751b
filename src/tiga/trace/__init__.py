"""Recorded programs: immutable, hash-consed nodes, and the pure functions that rewrite them."""
