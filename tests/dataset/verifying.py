"""Verify a dataset whose manifest is replaced."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tokmill.dataset.checksum import json_chunks, manifest_sha256
from tokmill.dataset.verify import Verification, verify
from tokmill.place import open_place


def check(directory: Path, manifest: dict[str, Any]) -> Verification:
    """Verify a dataset whose manifest is this one."""
    (directory / "manifest.json").write_bytes(b"".join(json_chunks(manifest)))
    return verify(open_place(str(directory)), manifest)


def problems(directory: Path, manifest: dict[str, Any]) -> list[str]:
    return list(check(directory, manifest).problems)


def changed(manifest: dict[str, Any], *path: Any, to: object) -> dict[str, Any]:
    """Change one entry of a manifest and make its own sum fit."""
    forged = copy.deepcopy(manifest)
    at: Any = forged
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return {**forged, "sha256": manifest_sha256(forged)}
