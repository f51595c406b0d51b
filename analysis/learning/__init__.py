"""Accuracy and loss over time and cost, and how soon a target accuracy is reached."""
