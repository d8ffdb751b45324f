"""Matrices: strict YAML becomes cells, plans, runs and rows."""
