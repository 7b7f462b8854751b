"""Code for one kind of device each; backends never import one another."""
