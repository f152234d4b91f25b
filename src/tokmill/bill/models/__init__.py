"""Models: their configuration, and every tensor that they hold."""
