"""CPU kernels through MLIR and LLVM. In order:

- Values in registers: `lanes` have operators; `arithmetic` emits them, with `conversions`,
  `functions*` on `coefficients`, and `complex_values`.
- A walk's kernel: `kernel` has its `tasks`, each a `task_function`; `edges` loops over a row's
  edges, `scope` says where each value is evaluated and `layout` how it lies in registers.
- What the loop does besides: `products`, `scans`, `scatters`; `pieces` and `split_scans` for rows
  of several tasks, `joint` for two walks in one kernel.
- Memory: `slots` lay out the table of arguments, `arguments` read it; `memory` loads and stores.
- Machine code: `stages` verifies a module, `engine` compiles it, `kernel_cache` finds what an
  earlier process compiled, as an `image`.
- Runs: `executable` holds a plan's `steps`, `binding` binds them to a graph, `launcher` runs them;
  products of nodes are `node_products` or calls of a `library`.
- Around it: `frame` for the kernels written by hand, which sort edges (`sorts`) and find near
  points (`near`); `dense/` for whole-tensor programs, `paged/` for graphs in files.
"""
