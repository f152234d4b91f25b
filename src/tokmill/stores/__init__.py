"""Object stores: connections with retries, and objects that are read as files."""
