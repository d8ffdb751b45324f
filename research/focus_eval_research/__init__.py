"""Measures what public answers and selections show: policies, predictions, leaderboards and the worlds' validity."""
