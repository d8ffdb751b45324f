"""The lmms-eval plugin: the seam, and one adapter per wrapper."""
