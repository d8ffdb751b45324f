"""Reads and evaluates results made elsewhere: selections, logs and relevance."""
