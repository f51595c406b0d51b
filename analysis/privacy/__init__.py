"""Privacy leaks of clients, and what a mechanism guarantees."""
