"""PAUSE (Peleg et al.) and the policies that share its rewards: their solvers, their parameters, and their genie.

A policy (`pause`, `pause_brute`, `sa_pause`, `vanilla_sa_pause`, `bsfl`) is `UcbPolicy` with one of three solvers of eq. 14:
`exact_search`, `enumeration` or `annealing`.
"""
