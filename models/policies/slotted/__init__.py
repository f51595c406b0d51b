"""Policies of the slotted server, which keeps a set of clients for a slot and observes their opinions (Tong et al. 2024)."""
