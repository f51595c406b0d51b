"""Participation of clients, and the data that they hold."""
