"""Oort (Lai et al. 2021): the policy, its pacer, its parameters."""
