"""Where the bytes of native tensors are when memory is scarce.

Budgets: `execution`, and `working`, which makes room for what is computed. Blocks that leave and
come back: `residency`, `absent` and, from GPUs, `device_spill`; tensors in files: `snapshot`. What
does not fit at once: `tiling` with `tiling_rules`, `external_sort` and `mapped_results`.
"""
