"""Metrics against the numeric keys that a sweep varies."""
