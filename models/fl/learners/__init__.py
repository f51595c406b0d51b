"""Learners: the models of a server, of a tree of edges, of peers or of slots, and the methods that they apply."""
