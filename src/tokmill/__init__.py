"""tokmill: corpora in, token shards out."""

__version__ = "0.1.0"
