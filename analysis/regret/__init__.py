"""Regret of selection policies against the genie, and the bound that theory gives."""
