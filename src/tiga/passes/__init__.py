"""The pipeline: one pass per file, in one flat list. In order:

- `pipeline` lists the passes, `base` says what one is; `verify` and `dump` look between them.
- Programs become simpler programs: `differentiate`, `expand`, `canonicalize`, `hoist` and the rest
  that `pipeline` names.
- `form_rows` decides which walk computes what: into row programs (`rows`), each a `draft` until
  then; `pairs`, `split_rows` and `buffers` look at several of them. `schedule` fits each to lanes.
- `tensor_plan` cuts a whole-tensor program into kernels (`tensor_spec`), and `tensor_schedule` fits
  those; `tensor_vjp` and `tensor_checkpoints` are its derivatives.
- As text: `gf` (`domain`, `emit`, `read`), `gf_iter` and `gf_kernel` (`iteration`, `kernel`,
  `emit_rows`, `read_rows`), `gf_tensor` (`tensor_dialect`, `tensor_text`); `levels` has all four,
  `transform` runs passes on them as `spelling` names them.
"""
