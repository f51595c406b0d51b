"""Consensus phase of clients that decide among themselves: duration, agreement, cost."""
