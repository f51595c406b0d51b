"""Wiring of the clients: population, device table, local work and its time, and energy."""
