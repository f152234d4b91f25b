"""Files that trainers share, and the tokens, rows and spans of which they are made."""
