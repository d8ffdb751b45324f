"""Try a sampler: its contract, simulated worlds, and a verdict against controls."""
