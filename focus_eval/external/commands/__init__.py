"""The commands for whoever has results of others, one file per noun."""
