"""Families of models: what a configuration makes of tensors, as Hugging Face transformers 5.23."""
