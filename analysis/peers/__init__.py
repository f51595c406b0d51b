"""Training without a server: models of the peers, and which peer waited for which."""
