"""Flows: bytes that cross links at max-min fair rates, solved exactly, and the times at which they end. Used by
`netsim.network.routed` and shared links.
"""
