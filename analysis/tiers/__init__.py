"""Edge tiers: where the time goes between clients, edges and the server."""
