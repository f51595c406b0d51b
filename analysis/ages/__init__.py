"""Ages of information: AoI regret and variance, maps of ages, deliveries by client."""
