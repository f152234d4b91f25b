"""The bill as text."""

TRAINING_PARTS = ("gpu", "host", "disk", "time")
INFERENCE_PARTS = ("inference",)
PARTS = (*TRAINING_PARTS, *INFERENCE_PARTS)
"""Parts of a bill that can be shown alone."""
