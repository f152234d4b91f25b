"""What a tokenizer is: its files, names, control tokens, decoding and byte lengths."""
