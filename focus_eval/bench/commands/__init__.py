"""The commands for whoever makes a table, one file per noun."""
