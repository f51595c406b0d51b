"""Changes of sub-channels that a scheduler declared, against those that really happened."""
