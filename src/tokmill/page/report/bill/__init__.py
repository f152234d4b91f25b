"""The bill of a dataset on its page: cases computed beforehand, and bars that show them."""
