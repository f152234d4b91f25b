"""Host RAM of one machine."""
