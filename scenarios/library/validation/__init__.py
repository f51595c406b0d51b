"""Scenarios of tables that others published, for external validation."""
