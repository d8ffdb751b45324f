"""What tests and scripts share; not part of the installed package."""
