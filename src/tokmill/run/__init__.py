"""A run: prepare, plan, parts, commits, manifest."""
