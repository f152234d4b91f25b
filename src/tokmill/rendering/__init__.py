"""Renderers: records to documents."""
