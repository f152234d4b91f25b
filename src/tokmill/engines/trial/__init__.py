"""Which engine gives exactly the ids of the reference, and is the fastest."""
