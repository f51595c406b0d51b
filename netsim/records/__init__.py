"""Records of a run: the types of its rows, and where they go."""
