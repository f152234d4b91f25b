"""The frameworks that loss masks are compared with: one module each, run with their own code."""
