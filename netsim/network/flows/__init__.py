"""Flows on links: max-min fair rates, exactly, and the ends that follow from them."""
