"""Reads the memory that processes really take."""
