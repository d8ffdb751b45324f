"""The encoder whose weights come from the package index."""
