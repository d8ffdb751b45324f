"""The store of a run: rows in folders, and packed."""
