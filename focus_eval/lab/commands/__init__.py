"""The commands for whoever has a sampler, one file each."""
