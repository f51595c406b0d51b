"""What an update releases, and the noise that protects it."""
