"""A block of input to encoded documents: for pretraining and for SFT."""
