"""What is written, how it lies on disk, and with what it was made."""
