"""Campaigns that attack the program at random: `python -m tests.reliability.NAME`; docs/reliability.md says what each found."""
