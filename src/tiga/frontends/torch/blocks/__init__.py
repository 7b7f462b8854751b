"""What cannot be fused: `edge` and `node` run through torch, block of destinations by block.

`bounded` serves a call: `plan` says how large blocks are, `job` runs them, `fields` is what they
read and make, in memory or in files (`paged`) and on a GPU (`device`); `autograd` and `gradients`
run them again for derivatives.
"""
