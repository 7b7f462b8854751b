"""What a compiled program needs while it runs: threads, buffers, caches."""
