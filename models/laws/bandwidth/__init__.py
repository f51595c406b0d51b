"""Bandwidth of links over time."""
