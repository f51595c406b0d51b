"""What became of updates: deliveries over time, and how attempts ended."""
