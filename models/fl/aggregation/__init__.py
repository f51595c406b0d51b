"""From delivered updates to the next model."""
