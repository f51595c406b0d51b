"""Numbers of runs, each with one definition, and comparisons of variants by them."""
