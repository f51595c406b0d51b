"""Fits of scenarios to measured logs: laws of durations and losses, a predictive check, and a report."""
