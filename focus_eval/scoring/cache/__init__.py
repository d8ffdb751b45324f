"""What is kept of an encoder's work."""
