"""Calls inside `torch.compile` and `torch.export`: a program as one op of torch's library."""
