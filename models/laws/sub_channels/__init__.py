"""Laws of sub-channels over a run: their states, and the jammers that attack them."""
