"""The configuration that a name stands for: a file, a built-in model, or one on the Hub.

known.json holds the built-in ones: what decides tensors, windows and positions, as in the
config.json of each model on the Hub.
"""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from tokmill.bill.models.headers import INDEX_FILE, Entry, hub_entries, read_entries
from tokmill.errors import StorageError, UsageError

SAME_TENSORS = re.compile(r"(instruct|chat|base|it|pt|hf)+$")
"""Ends of names of models that differ from the one before them in the values of tensors only."""


def known_models() -> tuple[str, ...]:
    """Return the names of the built-in models, sorted."""
    return tuple(sorted(_file()["models"]))


def known_config(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the built-in name that a name means, and its configuration; None if there is none.

    Case, separators and an ending as -Instruct do not matter. `organisation/model` is built in only
    if the organisation is the one that published the model: others may have changed its shape.
    """
    plain = _plain(name)
    by_plain = _by_plain()
    found = by_plain.get(plain) or by_plain.get(SAME_TENSORS.sub("", plain))
    organisation = name.rstrip("/").rpartition("/")[0].lower()
    if found is None or (organisation and organisation not in _owners(found)):
        return None
    return found, _file()["models"][found]


def _owners(name: str) -> list[str]:
    """Return the organisations on the Hub that published a built-in model."""
    owners = _file()["owners"]
    return next(owners[start] for start in owners if name.startswith(start))


def near_models(name: str) -> tuple[str, ...]:
    """Return the three built-in names that look most like a name."""
    by_plain = _by_plain()
    near = difflib.get_close_matches(_plain(name), by_plain, n=3, cutoff=0.0)
    return tuple(dict.fromkeys(by_plain[plain] for plain in near))


@cache
def _by_plain() -> dict[str, str]:
    """Return the built-in name of each name without its separators."""
    found = {_plain(name): name for name in _file()["models"]}
    return found | {_plain(other): name for other, name in _file()["also"].items()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.rstrip("/").rpartition("/")[2].lower())


@cache
def _file() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("known.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, Any]] = json.loads(text)
    return loaded


CONFIG_FILE = "config.json"
SUFFIX = ".safetensors"
HUB_SECONDS = 5.0
MOST_BYTES = 16 << 20
"""A configuration is some kB; what is larger is another file."""


def named_config(name: str) -> tuple[dict[str, Any], str, str]:
    """Return the configuration, the model's name, and where it was found.

    A path wins over a built-in name, a built-in name over one on the Hub. The configuration is
    empty where there are safetensors files without one.

    Raises:
        UsageError: there is none of that name, or it is no JSON object.
        StorageError: it cannot be read.
    """
    path = _path_of(name)
    if path is not None and (path.suffix == SUFFIX or _has_tensors(path)):
        return {}, path.stem if path.suffix else path.resolve().name, str(path)
    if path is not None and path.is_file():
        return _read_config(path), path.resolve().parent.name, str(path)
    found = known_config(name)
    if found is not None:
        return found[1], found[0], f"model {found[0]}"
    if path is not None or name.endswith((".json", SUFFIX)) or name.startswith(("/", ".", "~")):
        raise UsageError(f"{path or name}: no such file; give a {CONFIG_FILE} or its directory")
    found_file = _from_hub(name)
    return {} if found_file is None else _read_config(found_file), name, f"model {name}"


def tensors_of(name: str) -> list[Entry]:
    """Return the tensors of a model's safetensors files, [] if a path has none.

    Raises:
        UsageError: a file is damaged, or the Hub does not give it.
        StorageError: a file cannot be read.
    """
    path = _path_of(name)
    if path is not None:
        return read_entries(path.parent if path.name == CONFIG_FILE else path)
    try:
        return hub_entries(name)
    except Exception as error:  # its errors have no common root: HTTP, offline, gated, bad names
        raise UsageError(
            f"model {name}: its architecture is not known, and its files cannot be read; the Hub: "
            f"{_one_line(error)}"
        ) from error


def _has_tensors(path: Path) -> bool:
    """Return whether a path is a directory with safetensors files and no configuration."""
    return path.is_dir() and (any(path.glob("*" + SUFFIX)) or (path / INDEX_FILE).is_file())


def _path_of(name: str) -> Path | None:
    """Return the configuration that a path names, there or not; None if it names nothing.

    Without a configuration, the directory of safetensors files.
    """
    try:
        path = Path(name).expanduser()
        if not path.is_dir():
            return path if path.exists() else None
        config = path / CONFIG_FILE
        return config if config.is_file() or not _has_tensors(path) else path
    except (OSError, RuntimeError) as error:  # RuntimeError: a home directory that is not known
        reason = getattr(error, "strerror", "") or error
        raise StorageError(f"{name[:80]}: cannot be read ({reason})") from error


def _read_config(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path}: expected a config.json, found a file over {MOST_BYTES} B")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: expected JSON, found bytes that are no UTF-8") from error
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON ({error})") from error
    if not isinstance(config, dict):
        raise UsageError(f"{path}: expected a JSON object, found {type(config).__name__}")
    return config


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
    except Exception as error:  # its errors have no common root: HTTP, offline, gated, bad names
        is_there = isinstance(error, EntryNotFoundError)
        if is_there and not isinstance(error, LocalEntryNotFoundError):
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
