"""The bill as text."""

PARTS = ("gpu", "host", "disk", "time", "inference")
"""Parts of a bill that can be shown alone."""
