"""Records to documents."""
