"""Exports: files that appear together in a directory, and the record of what they are."""
