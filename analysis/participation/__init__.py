"""Which clients take part how often, and what data they hold."""
