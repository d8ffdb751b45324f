"""Clips, arms, confidence radii, allocation and draws as pure functions of arrays."""
