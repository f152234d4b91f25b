"""Headers of safetensors files: name, type, shape and bytes of every tensor.

A file is the length of its header (8 bytes, little-endian), the header (JSON), and the tensors,
which are not read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokmill.bill.models.model import Kind
from tokmill.errors import StorageError, UsageError
from tokmill.settings.load import check_regular

LENGTH_BYTES = 8
MOST_HEADER_BYTES = 100_000_000
"""The safetensors library reads no longer header."""
INDEX_FILE = "model.safetensors.index.json"
ONE_FILE = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a file; `dtype` is the name in safetensors (BF16, I32, …)."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int  # 0: not stored
    kind: Kind | None = None  # None: not known

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


def read_entries(path: Path) -> list[Entry]:
    """Return the tensors of a safetensors file, or of the model in a directory.

    A directory has an index of its files, else model.safetensors, else any safetensors files; []
    without any of them.

    Raises:
        UsageError: a file is damaged or missing.
        StorageError: a file cannot be read.
    """
    if path.is_file():
        return _read_file(path)
    index, one = path / INDEX_FILE, path / ONE_FILE
    if index.is_file():
        return _indexed(index)
    files = [one] if one.is_file() else sorted(path.glob("*.safetensors"))
    return [entry for file in files for entry in _read_file(file)]


def _indexed(index: Path) -> list[Entry]:
    """Return the tensors of the files in an index."""
    try:
        names = json.loads(index.read_bytes())["weight_map"].values()
        files = sorted({index.with_name(Path(name).name) for name in names})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{index}: expected an object with a weight_map ({error})") from error
    present = set(index.parent.iterdir())
    missing = next((file for file in files if file not in present), None)
    if missing:
        raise UsageError(f"{missing}: no such file, but {index.name} names it; download it")
    return [entry for file in files for entry in _read_file(file)]


def hub_entries(name: str) -> list[Entry]:
    """Return the tensors of a model on the Hub. Reads the headers of its files (HTTP ranges).

    Raises:
        Exception: any error of huggingface_hub.
    """
    from huggingface_hub import get_safetensors_metadata

    files = get_safetensors_metadata(name).files_metadata.values()
    return [
        Entry(key, info.dtype, tuple(info.shape), info.data_offsets[1] - info.data_offsets[0])
        for file in files
        for key, info in file.tensors.items()
    ]


def _read_file(path: Path) -> list[Entry]:
    """Return the tensors in the header of one file."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            room = path.stat().st_size - LENGTH_BYTES
            if not 0 < length <= min(room, MOST_HEADER_BYTES):
                raise _damaged(path, f"a header of {length:,} B in {room:,} B")
            header = json.loads(file.read(length))
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, f"a header that is no JSON ({error})") from error
    if not isinstance(header, dict):
        raise _damaged(path, f"a header that is {type(header).__name__}")
    header.pop("__metadata__", None)
    return [_entry(path, name, found, room - length) for name, found in header.items()]


def _entry(path: Path, name: str, found: Mapping[str, Any], data_bytes: int) -> Entry:
    """Return a tensor of a header; its type, shape and place must agree."""
    try:
        start, stop = found["data_offsets"]
        entry = Entry(name, str(found["dtype"]), tuple(found["shape"]), stop - start)
        valid = all(type(n) is int and n >= 0 for n in (*entry.shape, start, entry.n_bytes))
        valid = valid and entry.size * _bits(entry.dtype) == 8 * entry.n_bytes
    except (KeyError, TypeError, ValueError):
        valid = False
    if not valid or stop > data_bytes:
        raise _damaged(path, f"tensor {name!r} with {found!r:.80} in {data_bytes:,} B")
    return entry


def _bits(dtype: str) -> int:
    """Return the bits per element: the number in the name (BF16, F8_E4M3), else 8 (BOOL)."""
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 8


def _damaged(path: Path, found: str) -> UsageError:
    return UsageError(f"{path}: damaged, or no safetensors file: found {found}; download it again")
