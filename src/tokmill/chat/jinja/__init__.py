"""Chat templates in Jinja: a sandbox with limits, and the trained spans of what they write."""
