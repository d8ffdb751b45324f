"""Types, errors, options, plugins and resources: what every other package may use."""
