"""Manifests and forecasts as text."""
