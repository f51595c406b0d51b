"""Media of transmissions: draws of time and loss, sub-channels, shared bandwidth, jamming, outages.

Nothing here knows what a client or a model is; who transmits is a Protocol.
"""
