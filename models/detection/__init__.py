"""Detectors of changes in the mean of a stream of numbers in [0, 1], one method a file."""
