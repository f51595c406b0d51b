"""Changes of the world: how soon they were declared, what they cost, how long recovery took."""
