"""One adapter for each of lmms-eval's wrappers."""
