"""Bounds of the papers for a finished run, or the reasons why they do not hold."""
