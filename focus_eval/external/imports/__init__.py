"""Selections, logs and relevance of others: their formats become rows, rows become their formats."""
