"""Protocols of training without a server, one a file: each decides when a peer trains, what it sends, what it waits for and how
it combines models.
"""
