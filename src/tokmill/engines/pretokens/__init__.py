"""Where a text can be split into pretokens, and the ids of each: for `tokenizers+cache`."""
