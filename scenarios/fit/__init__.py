"""From measured logs to a scenario: laws of durations and losses, a check of their predictions, and a report."""
