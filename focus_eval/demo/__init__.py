"""The demo's benchmark: long videos made of photographs that installed packages carry."""
