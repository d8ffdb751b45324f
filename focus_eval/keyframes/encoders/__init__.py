"""Encoders, one file each, found by `registry`."""
