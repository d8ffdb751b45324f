"""LLaVA-Video from its original checkpoint, on transformers' own classes."""
