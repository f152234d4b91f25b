"""The bill as text."""
