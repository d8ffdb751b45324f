"""Read results made elsewhere: selections, logs and relevance, and say what they show."""
