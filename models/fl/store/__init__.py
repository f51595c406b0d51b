"""The store of vectors: models and updates by identity, in memory or in a file."""
