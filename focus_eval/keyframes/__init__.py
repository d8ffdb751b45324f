"""Choose keyframes of a video: samplers, readers, encoders, and the functions that use them."""
