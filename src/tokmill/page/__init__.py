"""A dataset to look at: its summary, its samples, its bill as text."""
