"""Users' scripts: generators that wait for events of a run and act on it (docs/scripts.md)."""
