"""Clients that decide among themselves: how long the consensus phase takes, how far they agree, what it costs."""
