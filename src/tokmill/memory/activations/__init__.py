"""What the forward pass keeps for the backward pass: per token, by family, precision and kernel."""
