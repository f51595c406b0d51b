"""Learners, the interface of the models to the engine: of one server, a tree of edges, peers or slots; with what they share."""
