"""Quality of a model: on the test set, on the samples of clients, and as answers to probes."""
