"""A mix has a plan and records of its parts, and is continued by them like any run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tokmill
from tests.fixtures.datasets import TOKENIZER
from tokmill.api.dataset import Dataset
from tokmill.dataset.checksum import json_chunks
from tokmill.dataset.plan_file import plan_fingerprint
from tokmill.errors import StateError, TokmillError, VerifyError
from tokmill.mixing import output as output_of_mix

TEXTS = [f"text {n} " * 6 for n in range(40)]
SMALL: dict[str, Any] = {"shard_tokens": 300, "workers": 1, "progress": False}


@pytest.fixture
def texts(make: Callable[..., Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A dataset `a` in the current directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(make(TEXTS, part_bytes=1000).directory, "a")
    return tokmill.open("a")


def plan_in(output: str) -> dict[str, Any]:
    return dict(json.loads(Path(output, "plan.json").read_bytes()))


def state(output: str) -> dict[str, tuple[int, int]]:
    """Return inode and time of every file."""
    paths = [path for path in Path(output).rglob("*") if path.is_file() and path.name != ".lock"]
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in paths}


def test_the_slices_of_a_part_are_documents_of_shards(texts: Dataset) -> None:
    mixed = tokmill.mix({"a": "2x"}, output="m", **SMALL)
    plan = plan_in("m")
    shards = [(row["name"], row["documents"], row["tokens"]) for row in texts.manifest["shards"]]
    assert [row[:2] for row in plan["files"]] == [
        [f"a/{name}.bin", "documents"] for name, _, _ in shards
    ]
    slices = [piece for part in plan["parts"] for piece in part]
    once = [[i, 0, documents, 2 * tokens] for i, (_, documents, tokens) in enumerate(shards)]
    assert slices == [*once, *once]
    records = sorted(Path("m", "parts").iterdir())
    assert len(records) == len(plan["parts"]) > 2
    counted = [json.loads(path.read_bytes())["slices"] for path in records]
    assert sum(row["tokens"] for rows in counted for row in rows) == mixed.n_tokens
    listed = {file["name"] for file in mixed.manifest["files"]}
    assert {"plan.json", "tokenizer.zst", "parts/0000000.json"} < listed
    mixed.verify()


def test_the_slice_of_a_part_of_a_shuffle_is_a_range_of_places(texts: Dataset) -> None:
    mixed = tokmill.mix({"a": "2x"}, output="m", shuffle=1, **SMALL)
    plan = plan_in("m")
    assert plan["files"] == [["train", "order", "", 2 * mixed.n_tokens, 0, ""]]
    assert plan["mix"] == {key: mixed.manifest["mix"][key] for key in plan["mix"]}
    stop = 0
    for ((number, start, after, _),) in plan["parts"]:
        assert (number, start) == (0, stop)
        stop = after
    assert stop == len(mixed)


def test_a_mix_of_links_has_a_plan_without_parts(texts: Dataset) -> None:
    mixed = tokmill.mix(["a"], output="m", progress=False)
    assert (plan_in("m")["parts"], tokmill.status("m").is_finished) == ([], True)
    mixed.verify()
    Path("m/manifest.json").unlink()
    tokmill.mix(["a"], output="m", progress=False).verify()


@pytest.mark.parametrize("settings", [{}, {"shuffle": 1}, {"dedup": "mark"}])
@pytest.mark.parametrize("lost", ["train-0000001-0000.idx", "parts/0000002.json", "tokenizer.zst"])
def test_what_a_finished_mix_has_lost_is_made_again(texts, caplog, settings, lost) -> None:
    whole = tokmill.mix({"a": "2x"}, output="m", **settings, **SMALL)
    before, reader = state("m"), tokmill.open("m")
    Path("m", lost).unlink()
    again = tokmill.mix({"a": "2x"}, output="m", **settings, **SMALL)
    assert f"m: {lost} was removed or cut: it is made again" in caplog.text
    again.verify()
    assert reader[0].tolist() == again[0].tolist()  # it was open meanwhile
    assert (again.identity, again.manifest["files"]) == (whole.identity, whole.manifest["files"])
    kept = {name for name, stamp in state("m").items() if before[name] == stamp}
    part = lost.split("-")[1] if "-" in lost else Path(lost).stem
    assert {f"m/parts/{n:07d}.json" for n in range(3)} - kept <= {f"m/parts/{part}.json"}
    assert not Path("m/.mix").exists()


@pytest.mark.parametrize("settings", [{}, {"shuffle": 1, "shard_tokens": 300}])
@pytest.mark.parametrize("damage", ["changed", "removed"])
def test_a_damaged_input_costs_a_finished_mix_nothing(texts, settings, damage) -> None:
    quiet: dict[str, Any] = {"workers": 1, "progress": False, **settings}
    tokmill.mix("a", output="m", **quiet)
    body = min(Path("a").glob("*.bin"))
    sound = body.read_bytes()
    body.unlink()
    if damage == "changed":
        body.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
    Path("m/train-0000001-0000.idx").unlink()
    before = state("m")
    for _ in range(2):
        with pytest.raises(VerifyError, match=r"not those of the manifest|: missing"):
            tokmill.mix("a", output="m", **quiet)
        assert state("m") == before
    body.write_bytes(sound)
    tokmill.mix("a", output="m", **quiet).verify()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"shuffle": 2}, "shuffle was 1, is 2"),
        ({"shuffle": None}, "shuffle was 1, is not set"),
        ({"dedup": True}, "dedup was not set, is drop"),
        ({"inputs": {"a": "3x"}}, "the datasets were a=2x, are a=3x"),
        ({"shard_tokens": 200, "min_tokens": 2}, "min_tokens was not set, is 2; shard_tokens was"),
    ],
)
def test_a_mix_says_what_differs_from_the_one_that_stands_there(texts, change, told) -> None:
    asked = {"inputs": {"a": "2x"}, "shuffle": 1, **SMALL}
    tokmill.mix(output="m", **asked)
    for _ in range(2):
        before = state("m")
        with pytest.raises(StateError, match="holds a mix of other inputs or settings") as found:
            tokmill.mix(output="m", **{**asked, **change})
        assert f": {told}" in str(found.value)
        assert state("m") == before
        Path("m/manifest.json").unlink(missing_ok=True)


def test_a_plan_with_other_parts_is_not_continued(texts, monkeypatch) -> None:
    tokmill.mix("a", output="m", shuffle=1, **SMALL)
    Path("m/train-0000001-0000.bin").unlink()
    monkeypatch.setattr(output_of_mix, "_FILLED", 0.5)
    with pytest.raises(StateError, match=r"m/plan.json: has other parts than this mix"):
        tokmill.mix("a", output="m", shuffle=1, **SMALL)


def test_the_status_of_a_stopped_mix_counts_its_parts(texts: Dataset) -> None:
    tokmill.mix("a", output="m", shuffle=1, **SMALL)
    n_parts = len(list(Path("m/parts").iterdir()))
    for name in ("manifest.json", "parts/0000001.json"):
        Path("m", name).unlink()
    status = tokmill.status("m")
    assert (status.parts, status.missing, status.made_by) == (n_parts, (1,), "a mix")
    with pytest.raises(TokmillError, match="the same tokmill mix command continues it"):
        tokmill.finish("m")
    tokmill.mix("a", output="m", shuffle=1, **SMALL).verify()
    assert tokmill.status("m").is_finished


FORGED: dict[str, Callable[[dict[str, Any]], object]] = {
    "a file with a reading": lambda plan: plan["files"][0].append(0),
    "no mix": lambda plan: plan.pop("mix"),
    "another engine": lambda plan: plan["engine"].update(name="reference"),
    "the engine of an import": lambda plan: plan["engine"].update(name="import"),
    "no tokenizer": lambda plan: plan.pop("tokenizer"),
    "no tokenizer and no mix": lambda plan: (plan.pop("tokenizer"), plan.pop("mix")),
    "a name that is no text": lambda plan: plan["mix"]["sources"][0].update(name=1),
    "inputs that are no list": lambda plan: plan["mix"].update(inputs={}),
    "settings of other kinds": lambda plan: plan["mix"].update(settings={"shuffle": {}}),
    "another mix": lambda plan: plan["mix"].update(fingerprint="0"),
    "many linked parts": lambda plan: plan.update(linked_parts=1 << 60),
    "a negative number": lambda plan: plan.update(linked_parts=-1),
    "a part of nothing": lambda plan: plan["parts"].append([]),
    "a slice of no file": lambda plan: plan["parts"][0][0].__setitem__(0, 9),
    "one part": lambda plan: plan["parts"].pop(),
    "a part more": lambda plan: plan["parts"].append(plan["parts"][0]),
}


@pytest.mark.parametrize("change", FORGED)
def test_a_forged_plan_of_a_mix_is_a_message(texts, write_rows, change: str) -> None:
    tokmill.mix("a", output="m", shuffle=1, **SMALL)
    Path("m/manifest.json").unlink()
    plan = plan_in("m")
    FORGED[change](plan)
    del plan["fingerprint"]
    Path("m/plan.json").unlink()
    content = b"".join(json_chunks({**plan, "fingerprint": plan_fingerprint(plan)}))
    Path("m/plan.json").write_bytes(content)
    rows = write_rows(Path("in.jsonl"), [{"text": "a"}])
    calls: list[Callable[[], object]] = [
        lambda: tokmill.status("m"),
        lambda: tokmill.finish("m"),
        lambda: tokmill.run_part("m", 0, 2),
        lambda: tokmill.pretrain(rows, tokenizer=TOKENIZER, output="m", progress=False),
        lambda: tokmill.mix("a", output="m", shuffle=1, **SMALL),
    ]
    for call in calls:
        with suppress(TokmillError):
            call()
    tokmill.mix("a", output="m", shuffle=1, overwrite=True, **SMALL).verify()
