"""The networks of the papers: BLIP, CLIP, SigLIP, Long-CLIP."""
