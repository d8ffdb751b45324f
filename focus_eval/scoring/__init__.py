"""Relevance of frames to a query: one file per encoder family."""
