"""Rows of selections and answers: fields, identity, files."""
