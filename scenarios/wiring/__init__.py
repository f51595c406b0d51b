"""Wiring of a checked scenario to a simulation: the one place where engine and models meet."""
