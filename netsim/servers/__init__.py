"""The servers: the round loop, dispatch rules, close rules, and instruments."""
