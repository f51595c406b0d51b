"""Changes of the world: delays of declarations, costs, recovery times."""
