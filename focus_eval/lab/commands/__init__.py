"""Commands for samplers, one file each."""
