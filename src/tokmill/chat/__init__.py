"""Conversations to samples: what the records say, how a template writes it, what is trained."""
