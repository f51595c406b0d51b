"""The composition root: reads a scenario file, wires engine and models, and runs. The scenario files lie here too."""
