"""Files that trainers share, and the rows and token streams of which they are made."""
