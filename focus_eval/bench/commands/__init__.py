"""Commands for making tables, one file per noun."""
