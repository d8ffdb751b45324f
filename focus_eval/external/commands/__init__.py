"""The commands for whoever has results of others."""
