"""Local training of clients."""
