"""Runs the parts of a plan, and a whole run."""
