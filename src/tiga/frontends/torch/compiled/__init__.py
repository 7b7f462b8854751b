"""Calls inside `torch.compile` and `torch.export`: a program as one op of torch's library.

`call` is traced by torch's compiler; `library` has the op, `callee` reads what its text says,
`transformed` has its derivatives, `topologies` the graphs of its index tensors.
"""
