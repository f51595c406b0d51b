"""Finished runs and sweeps as data: their sources, and checks of files."""
