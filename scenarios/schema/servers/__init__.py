"""The `[server]` table: one model for each kind of server."""
