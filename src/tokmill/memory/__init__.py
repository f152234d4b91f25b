"""The bill: parameters, GPU memory, host RAM and disk, as pure functions over plain values."""
