"""The pipeline: one pass per file, in one flat list."""
