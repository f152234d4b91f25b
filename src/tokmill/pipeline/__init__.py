"""A run: plan, parts, manifest."""
