"""Language and vision-language models that a sampler may ask, and that score frames as an encoder."""
