"""Relevance traces with planted evidence, and samplers run on them."""
