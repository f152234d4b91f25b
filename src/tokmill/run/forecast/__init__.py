"""Predicts a run from a sample of its input."""
