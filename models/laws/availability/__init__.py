"""Laws of availability: the times at which each client is present, drawn or from files."""
