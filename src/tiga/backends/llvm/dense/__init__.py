"""Kernels of whole-tensor programs, for native tensors. In order:

- `run` compiles a kernel once per code and runs it; `decomposition` cuts its domain into tasks,
  `slots` lay out its arguments, and `finish` combines what tasks leave.
- `kernel` has a loop per `phase`, which reduces (`stretches`, or `columns` over rows) and scans.
- `lanes` evaluate values there: `values` in registers, `functions`, `windows` and `places` to read.
- `adds` and `extrema` are kernels by themselves.
"""
