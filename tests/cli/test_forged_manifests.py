"""No forged manifest is a traceback, whatever reads it; and nothing outside is opened."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tokmill.cli.main import cli
from tokmill.dataset.checksum import json_chunks, manifest_sha256
from tokmill.errors import TokmillError
from tokmill.executors.run import run
from tokmill.settings.sft import SftSettings

N_EDITS = 20
"""For each command and kind of dataset: thousands were tried when this was written."""

HOSTILE: list[Any] = [
    None, True, -1, 0, 1, 2, 10**15, 2**63, 10**300, 1.5, -0.5, 1e308, "", " ", "x", "../x",
    "/etc/passwd", "\x1b]0;x\x07", "\ud800", "a" * 999, [], [[]], [0], {}, {"id": 0}, {"": {}},
    [{}], "train", "train-0000000-0000", json.loads("[" * 300 + "]" * 300),
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container and key inside a value."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def forge(manifest: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return a manifest with one to three random edits, and sometimes a sum that fits it."""
    forged = copy.deepcopy(manifest)
    for _ in range(chance.randint(1, 3)):
        container, key = chance.choice(list(places(forged)))
        edit = chance.random()
        if edit < 0.2:
            del container[key]
        elif edit < 0.3 and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        else:
            container[key] = copy.deepcopy(chance.choice(HOSTILE))
        if not forged:
            break
    if chance.random() < 0.8:
        forged["sha256"] = manifest_sha256(forged)
    return forged


@pytest.fixture(scope="module", params=["pretrain", "sft"])
def dataset(request, tmp_path_factory, configure, silent, write_rows) -> Path:
    directory = tmp_path_factory.mktemp("forged")
    settings: dict[str, Any] = {
        "val_fraction": 0.3, "max_reject_fraction": 1.0, "on_unread": "skip"
    }  # fmt: skip
    rows: list[Any] = [{"text": f"hello {i}"} for i in range(40)]
    if request.param == "sft":
        settings["sft"] = SftSettings(template="plain", packing=64, packed_rows=True)
        settings["max_tokens"] = 64
        turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "yes"}]
        rows = [{"messages": turns, "n": i} for i in range(40)]
    source = write_rows(directory / "in.jsonl", [*rows, b"{bad"])
    broken = directory / "broken.json"
    broken.write_text('{"no": array}')
    run(configure(directory / "out", source, broken, **settings), silent)
    os.mkfifo(directory / "x")  # opened by a name that leads outside, it would not return
    return directory / "out"


COMMANDS = [["verify"], ["inspect"], ["inspect", "--row", "0"], ["report"], ["report", "--json"]]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_forged_manifest_is_a_message_and_no_traceback(dataset, arguments):
    path = dataset / "manifest.json"
    data = path.read_bytes()
    chance = random.Random(f"{arguments} {dataset.name}")
    path.chmod(0o644)
    try:
        for number in range(N_EDITS):
            forged = forge(json.loads(data), chance)
            path.write_bytes(b"".join(json_chunks(forged)))
            done = CliRunner().invoke(
                cli, [arguments[0], str(dataset), *arguments[1:]], standalone_mode=False
            )
            error = done.exception
            if error is not None and not isinstance(error, TokmillError):
                raise AssertionError(f"edit {number}: {forged}") from error
    finally:
        path.write_bytes(data)
