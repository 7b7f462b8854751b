"""Walks over graphs in files on a GPU: the kernels of whole graphs, page after page."""
