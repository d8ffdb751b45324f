"""Answers questions about videos with a loaded model: choose, read, ask, write."""
