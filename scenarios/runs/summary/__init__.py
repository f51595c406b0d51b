"""The summary of a run, and the checks of its accounts."""
