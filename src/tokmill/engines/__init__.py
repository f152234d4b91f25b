"""Text to ids: the engines, and what keeps them exact and within memory."""
