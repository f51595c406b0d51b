"""Selection policies, one method a file with its paper in the header; NumPy only.

They satisfy `SelectionPolicy` of `netsim/core/protocols.py` without importing it. Families of methods have folders of their
own.
"""
