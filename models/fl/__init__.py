"""Federated learning: data, partitions, networks, local training, aggregation. The only room that imports torch, and it is
entered only when a scenario trains."""
