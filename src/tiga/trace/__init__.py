"""Traces: recorded programs and what is computed from them without lowering."""
