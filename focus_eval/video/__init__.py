"""Exact reading of video files: one file per backend."""
