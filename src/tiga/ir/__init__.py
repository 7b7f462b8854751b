"""MLIR behind one door: contexts, dialects and builders."""
