"""Benchmarks: a document becomes a question."""
