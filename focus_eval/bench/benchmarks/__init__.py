"""Benchmarks: turns the documents of data sets into questions."""
