"""Wiring of the clients: population, devices, work, and energy."""
