"""Clustered sampling (Fraboni et al. 2021): one client drawn from each of m distributions."""
