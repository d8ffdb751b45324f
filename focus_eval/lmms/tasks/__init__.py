"""What the YAML files in tasks/ call."""
