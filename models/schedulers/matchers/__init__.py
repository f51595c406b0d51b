"""Matchers: they give each client one of the channels that a scheduler has ranked."""
