"""The demo's benchmark: videos made of photographs from installed packages."""
