"""How long large sweeps take on many workers."""
