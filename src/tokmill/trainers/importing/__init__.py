"""Tokens of other trainers, read into a dataset."""
