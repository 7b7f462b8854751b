"""Kernels of whole-tensor programs, for native tensors on a GPU."""
