"""Walks over graphs in files: the kernels of whole graphs on one page after another. In order:

- `calls` serves a call and `run` runs its plan; `forecast` tells what that will take.
- `placement` says where arrays lie, `steps` how each step goes through pages, `division` how its
  walk is taken apart; `launch` has the kernels of a page run, by the threads of a `team`.
- `scatters` and `tables` add to other rows than the page's, `products` multiply blocks of rows.
- `tiles` takes rows whose other ends do not fit in memory, with `tile_kernels` of their own.
"""
