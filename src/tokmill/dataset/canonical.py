"""Canonical JSON, whose bytes depend on its values alone, and the sha256 of such JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
_CHUNK_BYTES = 1 << 20


def canonical_json(data: Any) -> bytes:
    """Return canonical JSON: sorted keys, no spaces, a line end."""
    return _CANONICAL.encode(data).encode() + b"\n"


def json_chunks(data: Mapping[str, Any]) -> Iterator[bytes]:
    """Yield canonical JSON with a line for each key and each row, about 1 MiB at a time.

    Rows are the entries of an iterator, or of a list of lists or objects. Without its line ends
    (those inside strings are escaped) this is the text of `canonical_json`.
    """
    texts: list[str] = []
    n_bytes = 0
    for text in _texts(data):
        texts.append(text)
        if (n_bytes := n_bytes + len(text)) >= _CHUNK_BYTES:
            yield "".join(texts).encode()
            texts, n_bytes = [], 0
    yield "".join(texts).encode()


def _texts(data: Mapping[str, Any]) -> Iterator[str]:
    yield "{"
    for i, key in enumerate(sorted(data)):
        yield f"{',' if i else ''}\n{_CANONICAL.encode(key)}:"
        value = data[key]
        if isinstance(value, Iterator) or (
            isinstance(value, list) and value and isinstance(value[0], list | dict)
        ):
            yield from _rows(value)
        else:
            yield _CANONICAL.encode(value)
    yield "\n}\n"


def _rows(rows: Iterable[Any]) -> Iterator[str]:
    start = "[\n"
    for row in rows:
        yield start
        yield _CANONICAL.encode(row)
        start = ",\n"
    yield "[]" if start == "[\n" else "\n]"


def sha256_hex(data: bytes) -> str:
    """Return the sha256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def manifest_sha256(manifest: Mapping[str, Any]) -> str:
    """Return the sha256 of a manifest's canonical JSON without its `sha256` key."""
    return sha256_without(manifest, "sha256")


def sha256_without(data: Mapping[str, Any], key: str) -> str:
    """Return the sha256 of the canonical JSON of `data` without `key`, where the sum is stored."""
    digest = hashlib.sha256()
    for chunk in json_chunks({k: v for k, v in data.items() if k != key}):
        digest.update(chunk.replace(b"\n", b""))
    digest.update(b"\n")
    return digest.hexdigest()
