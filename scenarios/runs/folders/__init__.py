"""The folder of a run: what may be replaced, its lock, its marker, and the state from which a run is resumed."""
