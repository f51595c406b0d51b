"""Answers for one round: without a client, with another deadline or bandwidth, and nothing else changed."""
