"""Wiring of the network: links, cables, sub-channels, jammers, outages, and sizes of messages."""
