"""Rounds: the loop that all servers share, dispatch, rules for the close, reports, and instruments."""
