"""Activations: tensors kept for the backward pass, by family, precision and kernel."""
