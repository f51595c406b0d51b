"""Wiring of the `[learner]` and of the privacy of its releases."""
