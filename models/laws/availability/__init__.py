"""Availability: when each client can be reached."""
