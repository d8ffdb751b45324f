"""Types, errors, options, plugins and resources, for use by all other packages."""
