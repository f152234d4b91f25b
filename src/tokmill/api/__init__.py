"""The Python interface, and the jobs that the command line shares with it."""
