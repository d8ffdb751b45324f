"""The commands for whoever makes a table."""
