"""Protocols of training without a server, one a file: what a peer trains, sends, waits for and combines."""
