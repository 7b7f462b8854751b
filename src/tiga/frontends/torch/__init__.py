"""Programs over torch tensors: capture, gradients and calls."""
