"""Sub-channels: their states, and the jammers that attack them."""
