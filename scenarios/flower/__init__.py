"""Flower apps on simulated time: the only place that imports flwr (extra `flower`), and only inside functions that need it."""
