"""Read a sample of the input, and predict a run from it: tokens, disk, time, memory."""
