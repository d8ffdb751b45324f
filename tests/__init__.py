"""The test suite; a package, so that no installed package of that name is taken for it."""
