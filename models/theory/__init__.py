"""Theorems and lemmas of the papers as functions, with paper and equations in the header of each file.

They are evaluated on records of runs or on parameters; no simulation calls them.
"""
