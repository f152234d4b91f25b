"""An export, read with the trainer's own reader and compared with the dataset."""
