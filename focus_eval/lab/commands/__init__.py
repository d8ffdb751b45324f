"""The commands for whoever has a sampler."""
