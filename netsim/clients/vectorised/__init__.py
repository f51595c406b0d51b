"""Updates of many clients simulated together as arrays; the same results as `netsim.clients.lifecycle` gives by events."""
