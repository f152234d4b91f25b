"""The fast path for Jinja templates: what a template writes around contents, learned from it."""
