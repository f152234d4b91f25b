"""Numbers and names as people read them."""
