"""The commands for whoever has a video, one file each."""
