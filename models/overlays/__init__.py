"""Overlays of silos: which silos exchange models, and how long a round takes (Marfoq, Xu, Neglia and Vidal, NeurIPS 2020)."""
