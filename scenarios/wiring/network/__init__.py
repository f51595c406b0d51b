"""Wiring of links: bandwidths, networks of cables, sub-channels, jammers, outages, and sizes of messages."""
