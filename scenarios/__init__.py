"""The composition root: reads a scenario file, wires engine and models, and runs. Library scenarios are here, too."""
