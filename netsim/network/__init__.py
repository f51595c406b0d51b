"""Media of transmissions: draws of time and loss, sub-channels, shared bandwidth, jamming, outages.

Nothing here knows models, or more of a client than its number; senders are Protocols.
"""
