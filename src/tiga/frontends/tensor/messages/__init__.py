"""`MessagePassing` on native tensors.

`call` makes a call of `fields`; `template`, `capture`, `entities`, `reduced` and, for reducers that
users write, `custom` with `claims` make its program of what `edge` and `node` build. `graph_call`
is that program as one op of whole tensors; `gpu_walk` runs it on a GPU, `oracle` by numpy. `calls`
keeps what a kernel knows of its calls. Edges: `edge_order`, `edge_reads`.

What no walk holds goes block by block: `bounded`, `stored_messages`, `segments`. Graphs in files:
`paged`, `paged_gpu`, `forecast`, and blocks of them: `file_blocks`, `file_block`, `block_rows`,
`block_orders`.
"""
