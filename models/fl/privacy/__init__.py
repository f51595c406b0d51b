"""Privacy of updates: the numbers that an update releases, and the noise that protects them."""
