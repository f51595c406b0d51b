"""Gossip as timed messages, by which clients learn which indices are the largest: flooding and random push."""
