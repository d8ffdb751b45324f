"""The commands for whoever has a video."""
