"""Ways for a user's Python to become a trace."""
