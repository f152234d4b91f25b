"""A dataset as one web page: sections, charts, style; nothing is loaded from a network."""
