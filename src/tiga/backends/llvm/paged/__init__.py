"""Walks over graphs in files: the kernels of whole graphs on one page after another."""
