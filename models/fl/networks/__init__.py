"""Networks and the layout of their parameters."""
