"""Statistics that know nothing of runs: intervals, curves, tests, censored times."""
