"""Selections, logs and relevance of others become rows, and rows their formats: a file each, found by its class."""
