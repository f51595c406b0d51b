"""Updates: deliveries over time, and outcomes of attempts."""
