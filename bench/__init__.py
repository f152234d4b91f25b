"""tokmill and its peers, run in turn on the same files and cores. `python -m bench --help`."""
