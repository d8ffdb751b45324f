"""Commands for videos, one file each."""
