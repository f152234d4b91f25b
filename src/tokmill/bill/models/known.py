"""The configuration of a model by its name: a file, a built-in model, or a model on the Hub.

known.json holds the built-in models: of each config.json on the Hub, the keys that decide tensors,
windows and positions.
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
"""Ends of names that change the values of tensors only: gemma-2b-it has the shape of gemma-2b."""
CONFIG_FILE = "config.json"
SUFFIX = ".safetensors"
HUB_SECONDS = 5.0
MOST_BYTES = 16 << 20
"""A configuration has some kB; a larger file is something else."""


def known_models() -> tuple[str, ...]:
    """Return the names of the built-in models, sorted."""
    return tuple(sorted(_file()["models"]))


def known_config(name: str) -> tuple[str, dict[str, Any]] | None:
    """Return the built-in name that matches a name, and its configuration; None for no match.

    Case, separators and an end such as -Instruct do not matter. `organisation/model` matches only
    if the organisation published the model: others may have changed its shape.
    """
    plain, by_plain, known = _plain(name), _by_plain(), _file()
    found = by_plain.get(plain) or by_plain.get(SAME_TENSORS.sub("", plain))
    if found is None:
        return None
    organisation = name.rstrip("/").rpartition("/")[0].lower()
    owners = next(known["owners"][start] for start in known["owners"] if found.startswith(start))
    return None if organisation and organisation not in owners else (found, known["models"][found])


def near_models(name: str) -> tuple[str, ...]:
    """Return the three most similar built-in names."""
    by_plain = _by_plain()
    near = difflib.get_close_matches(_plain(name), by_plain, n=3, cutoff=0.0)
    return tuple(dict.fromkeys(by_plain[plain] for plain in near))


@cache
def _by_plain() -> dict[str, str]:
    """Return built-in names by their names without separators."""
    found = {_plain(name): name for name in _file()["models"]}
    return found | {_plain(other): name for other, name in _file()["also"].items()}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.rstrip("/").rpartition("/")[2].lower())


@cache
def _file() -> dict[str, dict[str, Any]]:
    text = Path(__file__).with_name("known.json").read_text(encoding="utf-8")
    loaded: dict[str, dict[str, Any]] = json.loads(text)
    return loaded


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
        return _read_config(path), path.resolve().parent.name, str(path)
    found = known_config(name)
    if found is not None:
        return found[1], found[0], f"model {found[0]}"
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
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path}: expected a config.json, found a file over {MOST_BYTES} B")
        config = json.loads(path.read_bytes())
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
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
