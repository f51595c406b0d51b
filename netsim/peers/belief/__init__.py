"""Belief propagation as timed messages between clients: synchronous, or on arrival."""
