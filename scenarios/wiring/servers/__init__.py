"""Wiring of `server.kind` to a server."""
