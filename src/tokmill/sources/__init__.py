"""Input files to records."""
