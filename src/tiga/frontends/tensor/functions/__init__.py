"""Functions of native tensors under the array API's names, and torch's where it has none.

Element by element: `elementwise` (one op each), `selection` (whose result depends on the operands).
New tensors: `creation`, `filled`, `grids`. Over axes: `reductions`, `along`, `sorting`. Shapes and
parts: `views`, `pieces`, `indexing`. Products: `linear`. Made of others: `composed`, `losses`.
What the namespace says of itself: `namespace`.
"""
