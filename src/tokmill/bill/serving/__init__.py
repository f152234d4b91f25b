"""GPU memory of inference."""
