"""Samples to ids and a loss mask."""
