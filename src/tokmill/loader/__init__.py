"""A dataset as samples for a training loop: documents, windows and packs in a seeded order."""
