"""The kinds of servers, one module each, which compose the rules of `netsim.servers.rounds`; and the parts that only one kind
uses.
"""
