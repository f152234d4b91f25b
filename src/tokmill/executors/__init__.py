"""Whole runs and arrays of tasks; their parts on processes, or on Ray."""
