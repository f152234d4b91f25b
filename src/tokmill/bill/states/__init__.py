"""Weights, gradients and optimizer states, and how ranks share them."""
