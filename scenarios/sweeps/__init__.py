"""Sweeps: many runs of one scenario, on the workers of this machine or of a cluster."""
