"""One class per operation: its fields, types, reference meaning, derivatives and lowering."""
