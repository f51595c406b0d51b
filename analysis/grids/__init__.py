"""Which of several methods is best in which cell of a grid of parameters."""
