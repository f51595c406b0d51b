"""A run as a timeline for the Perfetto viewer (ui.perfetto.dev): JSON of the Trace Event Format, one event a line.

Tracks are named and folded: one for the rounds; those of the clients by group, with downloads, computing, waits and uploads, and
those of probes; jammed sub-channels; messages between clients. Arrows lead from a round to the downloads of its model, from a
delivered upload to the round that it came into, and from the sender of a message to its receiver. A simulated second is a second
of the viewer.
"""
