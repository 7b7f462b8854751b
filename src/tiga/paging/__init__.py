"""Graphs in files, for every backend: how walks are cut into pages, what a page holds, and how
pages follow one another through memory. Kernels are the backends' own."""
