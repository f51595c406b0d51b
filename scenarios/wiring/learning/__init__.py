"""Wiring of `[learner]`: the torch learner, the state that clients keep, and the privacy of updates."""
