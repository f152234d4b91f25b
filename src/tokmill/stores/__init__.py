"""Object stores, through fsspec: reading and writing objects again and again until it works."""
