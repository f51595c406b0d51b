"""Finished runs and sweeps as data: where they are read from, and how files are checked."""
