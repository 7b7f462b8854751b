"""Graphs: which edges exist and in which order they are walked."""
