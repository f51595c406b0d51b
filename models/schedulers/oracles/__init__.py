"""Oracles of AoI regret (Li et al.): schedulers that know the world."""
