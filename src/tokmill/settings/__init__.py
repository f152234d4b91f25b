"""Settings: what they are, and how they are read from TOML, options and variables."""
