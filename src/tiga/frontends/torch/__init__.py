"""Kernels on torch tensors. In order:

- `call` serves a call: `repeat` where it looks like the one before; else `fields` checks what it
  passes and `variants` finds the program, or `capture/` makes it from `edge` and `node`.
- `binding` gives the program's inputs their values, and `autograd` runs it under torch's autograd.
- `unit` has a program ready to run, and those of its derivatives: on the CPU, on a GPU (`gpu`,
  `gpu_replay`), and over graphs in files (`paged`, `paged_gpu`).
- `blocks/` runs what cannot be fused; `compiled/` serves calls that torch compiles.
"""
