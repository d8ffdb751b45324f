"""Confidence bounds, clips and allocation as pure functions of arrays."""
