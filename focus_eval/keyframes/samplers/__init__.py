"""Frame samplers: one file per algorithm."""
