"""Commands for results of others, one file per noun."""
