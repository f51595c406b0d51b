"""Selection policies, one method a file with its paper in the header; NumPy only. They satisfy `SelectionPolicy` of
`netsim/interfaces.py` without importing it."""
