"""The clients: the life of an update, from the download of a model to its outcome, and the pool of all clients."""
