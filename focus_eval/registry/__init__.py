"""The registry: a card, files and figures for each sampler, with the source of every figure."""
