"""Kernels of whole-tensor programs, for native tensors."""
