"""Policies of the slotted servers, which keep a set of clients for a slot and observe the clients' opinions (Tong et al. 2024).
"""
