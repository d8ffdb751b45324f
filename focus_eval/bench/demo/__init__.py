"""The demo's benchmark: long videos made of photographs from installed packages."""
