"""NVIDIA GPUs: row programs as Triton kernels."""
