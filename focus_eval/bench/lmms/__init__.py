"""The lmms-eval plugin: the adapter, and one model per wrapper."""
