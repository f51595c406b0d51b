"""Wiring of the coordinator: from `server.kind`, `[edges]` and `[slots]` to a server of the engine, with its probes."""
