"""A model by its name (a file, built in, or on the Hub): its configuration, and its tensors.

known.json holds the built-in models: of each config.json on the Hub, the keys that decide tensors,
windows and positions. Tensors come from the headers of safetensors files.

A safetensors file is the length of its header (8 bytes, little-endian), the header (JSON), and the
tensors, which are not read.
"""

from __future__ import annotations

import difflib
import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tokmill.bill.models.model import Kind
from tokmill.errors import StorageError, UsageError
from tokmill.opening import open_named, read_named

MODELOPT_FILE = "hf_quant_config.json"
"""Where NVIDIA's ModelOpt writes how weights are quantized, if config.json does not say it."""
CONFIG_FILE = "config.json"
SUFFIX = ".safetensors"
HUB_SECONDS = 5.0
MOST_BYTES = 16 << 20
"""A configuration has some kB; a larger file is something else."""


def named_config(name: str) -> tuple[dict[str, Any], str, str]:
    """Return the configuration of a model, its name, and the place for messages.

    A path is tried first, then built-in names, then the Hub. The configuration is empty if there
    are only safetensors files.

    Raises:
        UsageError: nothing has this name, or the configuration is not a JSON object.
        StorageError: a file cannot be read.
    """
    path = _path_of(name)
    if path is not None and (path.suffix == SUFFIX or _has_tensors(path)):
        return {}, path.stem if path.suffix else path.resolve().name, str(path)
    if path is not None and path.is_file():
        config = _read_config(path)
        beside = path.with_name(MODELOPT_FILE)
        if "quantization_config" not in config and beside.is_file():
            config["quantization_config"] = _read_config(beside)
        return config, path.resolve().parent.name, str(path)
    if (known := known_config(name)) is not None:
        return known[1], known[0], f"model {known[0]}"
    if path is not None or name.endswith((".json", SUFFIX)) or name.startswith(("/", ".", "~")):
        raise UsageError(f"{path or name}: no such file; give a {CONFIG_FILE} or its directory")
    found_file = _from_hub(name)
    return {} if found_file is None else _read_config(found_file), name, f"model {name}"


def tensors_of(name: str) -> list[Entry]:
    """Return the tensors in a model's safetensors files, [] if a path has no such file.

    Raises:
        UsageError: a file is damaged, or the Hub refuses it.
        StorageError: a file cannot be read.
    """
    path = _path_of(name)
    if path is not None and path.is_file() and path.suffix != SUFFIX:
        return read_entries(path.parent) if path.name == CONFIG_FILE else []
    if path is not None:
        return read_entries(path)
    try:
        return hub_entries(name)
    except Exception as error:  # they have no common base class: HTTP, offline, gated, bad names
        raise UsageError(
            f"model {name}: its files cannot be read; the Hub: {_one_line(error)}"
        ) from error


def is_local(name: str) -> bool:
    """Return whether a model's name is a path."""
    return _path_of(name) is not None


def _has_tensors(path: Path) -> bool:
    """Return whether a path is a directory with safetensors files and no configuration."""
    return path.is_dir() and (any(path.glob("*" + SUFFIX)) or (path / INDEX_FILE).is_file())


def _path_of(name: str) -> Path | None:
    """Return a file, a directory with only safetensors files, or config.json of another directory.

    None if there is no such path.
    """
    try:
        path = Path(name).expanduser()
        if not path.is_dir():
            return path if path.exists() else None
        config = path / CONFIG_FILE
        return config if config.is_file() or not _has_tensors(path) else path
    except (OSError, RuntimeError) as error:  # RuntimeError: unknown home directory
        reason = getattr(error, "strerror", "") or error
        raise StorageError(f"{name[:80]}: cannot be read ({reason})") from error


def _read_config(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        content = read_named(path, MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UsageError(f"{path}: expected a config.json, found a file over {MOST_BYTES} B")
        config = json.loads(content)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise UsageError(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path}: expected a JSON object, found {type(config).__name__}")
    return config


SAME_TENSORS = re.compile(r"(instruct|chat|base|it|pt|hf)+$")
"""Ends of names that change the values of tensors only: gemma-2b-it has the shape of gemma-2b."""


def known_models() -> tuple[str, ...]:
    """Return the names of the built-in models, sorted."""
    return tuple(sorted(_file()["models"]))


def known_config(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the built-in name that matches a name, and its configuration; None for no match.

    Case, separators and an end such as -Instruct do not matter. `organisation/model` matches only
    if the organisation published the model: others may have changed its shape.
    """
    plain, by_plain, known = _plain(name), _by_plain(), _file()
    built_in = by_plain.get(plain) or by_plain.get(SAME_TENSORS.sub("", plain))
    if built_in is None:
        return None
    organisation = name.rstrip("/").rpartition("/")[0].lower()
    owners = next(known["owners"][start] for start in known["owners"] if built_in.startswith(start))
    if organisation and organisation not in owners:
        return None
    return built_in, known["models"][built_in]


def near_models(name: str) -> tuple[str, ...]:
    """Return the three most similar built-in names."""
    by_plain = _by_plain()
    near = difflib.get_close_matches(_plain(name), by_plain, n=3, cutoff=0.0)
    return tuple(dict.fromkeys(by_plain[plain] for plain in near))


@cache
def _by_plain() -> dict[str, str]:
    """Return built-in names by their names without separators."""
    names = {_plain(name): name for name in _file()["models"]}
    return names | {_plain(other): name for other, name in _file()["also"].items()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.rstrip("/").rpartition("/")[2].lower())


@cache
def _file() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("known.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, Any]] = json.loads(text)
    return loaded


def _from_hub(name: str) -> Path | None:
    """Return a model's configuration, downloaded or from the Hub's cache; None if it has none."""
    unknown = f"model {name}: no file and no built-in model (near: {', '.join(near_models(name))})"
    if name.count("/") != 1:
        raise UsageError(f"{unknown}; a name on the Hub is organisation/model")
    try:
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    except ImportError as error:
        raise UsageError(f"{unknown}; for the Hub: pip install 'tokmill[hub]'") from error
    try:
        return _downloaded(name)
    except Exception as error:  # as in tensors_of
        # The model exists, without this file; LocalEntryNotFoundError, a subclass, means offline.
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            return None
        raise UsageError(f"{unknown}; the Hub: {_one_line(error)}") from error


def _downloaded(name: str) -> Path:
    """Return the newest configuration of a model on the Hub, or the one in the Hub's cache.

    Without a network the library would retry for 25 seconds; so one quick request is made first.
    """
    from huggingface_hub import (
        get_hf_file_metadata,
        hf_hub_download,
        hf_hub_url,
        try_to_load_from_cache,
    )

    try:
        get_hf_file_metadata(hf_hub_url(name, CONFIG_FILE), timeout=HUB_SECONDS)
    except Exception:  # see _from_hub
        cached = try_to_load_from_cache(name, CONFIG_FILE)
        if isinstance(cached, str):
            return Path(cached)
        raise
    return Path(hf_hub_download(name, CONFIG_FILE))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


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
        names = json.loads(read_named(index))["weight_map"].values()
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
        with open_named(path) as file:
            length = int.from_bytes(file.read(LENGTH_BYTES), "little")
            room = os.fstat(file.fileno()).st_size - LENGTH_BYTES
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
    return [_entry(path, name, tensor, room - length) for name, tensor in header.items()]


def _entry(path: Path, name: str, tensor: Mapping[str, Any], data_bytes: int) -> Entry:
    """Return a tensor of a header; its type, shape and place must agree."""
    try:
        start, stop = tensor["data_offsets"]
        entry = Entry(name, str(tensor["dtype"]), tuple(tensor["shape"]), stop - start)
        valid = all(type(n) is int and n >= 0 for n in (*entry.shape, start, entry.n_bytes))
        valid = valid and entry.size * _bits(entry.dtype) == 8 * entry.n_bytes
    except (KeyError, TypeError, ValueError):
        valid = False
    if not valid or stop > data_bytes:
        raise _damaged(path, f"tensor {name!r} with {tensor!r:.80} in {data_bytes:,} B")
    return entry


def _bits(dtype: str) -> int:
    """Return the bits per element: the number in the name (BF16, F8_E4M3), else 8 (BOOL)."""
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 8


def _damaged(path: Path, found: str) -> UsageError:
    return UsageError(f"{path}: damaged, or no safetensors file: found {found}; download it again")
