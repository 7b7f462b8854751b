"""What cannot be fused: `edge` and `node` run through torch, block of destinations by block."""
