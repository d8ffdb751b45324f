"""Encoders: frames and a query go in, relevance comes out."""
