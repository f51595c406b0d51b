"""Examples of scenarios."""
