"""This machine: cores, memory, and what a tree of processes takes of it."""
