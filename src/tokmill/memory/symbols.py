"""The symbols of the formulas: one meaning each, in every formula."""

from __future__ import annotations

SYMBOLS: dict[str, str] = {
    "E": "experts of a layer",
    "L": "layers",
    "N": "data-parallel degree",
    "P": "parameters, a tied tensor counted once",
    "R": "processes of a machine",
    "V": "ids that the embedding holds",
    "a": "query heads",
    "b": "micro batch, sequences",
    "c": "context-parallel degree",
    "d": "hidden size",
    "e": "experts that a token passes",
    "f": "width of the feed-forward layer",
    "h": "size of a head",
    "k": "key-value heads",
    "m": "width of an expert",
    "n": "tokens of a micro batch, b * s",
    "p": "pipeline stages",
    "q": "bytes of an element",
    "s": "tokens of a sequence",
    "t": "tensor-parallel degree",
    "v": "chunks of layers of a pipeline stage",
    "w": "loader workers of a process",
}
