"""Numbers of one run: each metric has one definition, for tables, figures, text, and everything that asks for it by name."""
