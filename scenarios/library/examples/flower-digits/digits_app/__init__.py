"""A small Flower app that knows nothing of netsim."""
