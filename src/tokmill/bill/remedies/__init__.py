"""Settings that save memory."""
