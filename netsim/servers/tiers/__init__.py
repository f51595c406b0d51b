"""Edge tiers: a tree of coordinators, each a server to its members and a client of the node above it."""
