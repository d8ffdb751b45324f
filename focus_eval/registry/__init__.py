"""The registry: a folder per sampler, what is known of each, where every figure comes from."""
