"""The rows of a run: their fields, their files, and the versions they were made with."""
