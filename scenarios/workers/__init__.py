"""Processes and Dask: one set of code for the runs of a sweep and for the training jobs of one run."""
