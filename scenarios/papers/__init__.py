"""Reproductions of figures and tables of papers, by name: scenario, published numbers, and rules fixed beforehand."""
