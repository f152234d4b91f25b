"""Types of the keyword arguments, for type checkers and editors: they stand in `arguments.pyi`."""
