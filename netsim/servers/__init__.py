"""The servers: rounds that all share (`rounds`), one module for each kind (`kinds`), assigned sub-channels, and trees of edges
(`tiers`).
"""
