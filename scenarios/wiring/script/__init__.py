"""Scripts of the user's: generators that wait for what happens in a run and act on it (docs/scripts.md)."""
