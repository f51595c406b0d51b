"""Clients among themselves: the consensus phase before a slot's training (`belief`, `gossip`), and protocols of training without
a server (`training`).
"""
