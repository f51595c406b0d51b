"""Durations of large sweeps on many workers."""
