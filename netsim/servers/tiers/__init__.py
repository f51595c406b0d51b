"""Edge tiers: a tree of coordinators. Each edge is a server to its members and a client of the node above it."""
