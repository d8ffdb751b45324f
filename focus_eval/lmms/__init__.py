"""The lmms-eval plugin: the adapter, and one adapter per wrapper."""
