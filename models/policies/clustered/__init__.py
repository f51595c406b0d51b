"""Clustered sampling (Fraboni et al. 2021): clients drawn from m distributions."""
