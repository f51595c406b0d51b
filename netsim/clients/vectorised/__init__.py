"""Updates of many clients simulated together as arrays."""
