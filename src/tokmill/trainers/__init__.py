"""A dataset in the layout of another trainer, and back."""
