"""PAUSE and the methods that share its rewards (Peleg et al.): the policies, their solvers, their parameters."""
