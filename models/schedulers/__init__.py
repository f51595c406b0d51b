"""Schedulers of channels: K clients over N >= K sub-channels that are Good or Bad; one method a file with its paper in the
header.

A scheduler chooses K channels and ranks them, best first; its matcher gives each client one of them. Both satisfy the Protocols
of `netsim/core/protocols.py` without importing them, and need no clock.
"""
