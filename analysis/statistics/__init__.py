"""Statistics, independent of runs: intervals, curves, tests, censored times."""
