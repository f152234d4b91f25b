"""An import is a run: it is stopped and continued, shared by workers, and made by arrays."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tokmill
from tests.fixtures.datasets import RECORDS, TOKENIZER
from tests.run.importing.conftest import EOS, files_of, write_datatrove, write_megatron
from tokmill.api import progress as progress_module
from tokmill.cli.main import cli
from tokmill.errors import RecordError, StateError, StorageError, UsageError
from tokmill.place import open_place

N_FILES = 6


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Six pairs of Megatron, of several documents each."""
    numbers = np.random.default_rng(7)
    paths = []
    for number in range(N_FILES):
        documents = [[*numbers.integers(3, 250, 1 + n % 5).tolist(), EOS] for n in range(20)]
        paths.append(write_megatron(tmp_path / f"{number}", documents))
    return paths


@pytest.fixture
def whole(bring, files) -> dict[str, bytes]:
    """The files of an import that was not stopped."""
    return files_of(bring(files, "megatron", val=files.pop(), output="whole").directory)


def test_an_import_that_was_stopped_keeps_what_is_done(
    bring, files, whole, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(progress_module, "CALL_EVERY_S", 0.0)
    val = tmp_path / f"{N_FILES - 1}"

    def stop(progress: Any) -> None:
        if len(list(tmp_path.glob("out/parts/*.json"))) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=rf"2 of {N_FILES} parts are kept"):
        bring(files, "megatron", val=val, progress=stop)
    kept = {path.name for path in (tmp_path / "out" / "parts").glob("*.json")}
    assert len(kept) == 2
    stamps = {name: (tmp_path / "out" / "parts" / name).stat().st_mtime_ns for name in kept}
    made = bring(files, "megatron", val=val)
    assert files_of(made.directory) == whole
    assert made.manifest["run"]["resumed_parts"] == len(kept)
    for name, stamp in stamps.items():
        assert (tmp_path / "out" / "parts" / name).stat().st_mtime_ns == stamp


def test_workers_write_the_same_bytes(bring, files, whole, tmp_path) -> None:
    made = bring(files, "megatron", val=tmp_path / f"{N_FILES - 1}", workers=2)
    assert made.manifest["run"]["workers"] == 2
    assert files_of(made.directory) == whole


KILLED = """
import sys, tokmill
sources, output, tokenizer = sys.argv[1:-3], sys.argv[-2], sys.argv[-1]
tokmill.import_dataset(
    sources, trainer="megatron", output=output, tokenizer=tokenizer, val=sys.argv[-3],
    progress=False,
)
"""


def test_an_import_that_is_killed_at_any_moment_continues(
    bring, files, whole, tmp_path, tokenizer_dir
) -> None:
    val = tmp_path / f"{N_FILES - 1}"
    arguments = [*map(str, files), str(val), str(tmp_path / "out"), str(tokenizer_dir)]
    for n_files in (1, 4, 9):  # of the output, when it is killed
        process = subprocess.Popen([sys.executable, "-c", KILLED, *arguments])
        while process.poll() is None and len(list(tmp_path.glob("out/**/*"))) < n_files:
            time.sleep(0.001)
        process.kill()
        process.wait()
    assert files_of(bring(files, "megatron", val=val).directory) == whole


def test_the_tasks_of_an_array_import_the_files(files, whole, tmp_path, tokenizer_dir) -> None:
    output = str(tmp_path / "out")

    def call(*words: str) -> str:
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
        return result.output

    command = ["import", *map(str, files), "--val", str(tmp_path / f"{N_FILES - 1}")]
    command += ["--from", "megatron", "-t", str(tokenizer_dir), "-o", output]
    assert f"{N_FILES} parts" in call(*command, "--write-plan")
    planned = json.loads(call(*command, "--write-plan", "--json"))
    assert planned == {"output": output, "parts": N_FILES}
    call("run-part", output, "--index", "1", "--of", "2")
    assert f"{N_FILES // 2} of {N_FILES}" in call("status", output)
    call("run-part", output, "--index", "0", "--of", "2")
    call("finish", output)
    assert files_of(tmp_path / "out") == whole
    assert "finished" in call("status", output)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"add_eos": True}, r"--add-eos was False, is True"),
        ({"trainer": "datatrove"}, r"expected X\.ds files"),
        ({"val": "1"}, r"named twice"),
    ],
)
def test_another_import_is_refused_and_says_why(
    bring, files, tmp_path, options: dict[str, Any], message: str
) -> None:
    bring(files, "megatron")
    chosen = {"trainer": "megatron", **options}
    if "val" in chosen:
        chosen["val"] = tmp_path / chosen["val"]
    with pytest.raises((StateError, UsageError), match=message):
        bring(tmp_path if "trainer" in options else files, **chosen)


def test_the_command_that_made_a_dataset_is_named(bring, files, single, tmp_path) -> None:
    made = bring(files, "megatron")
    with pytest.raises(StateError, match="made by tokmill import, this is tokmill pretrain"):
        tokmill.pretrain(RECORDS, tokenizer=TOKENIZER, output=made.directory, progress=False)
    with pytest.raises(StateError, match="made by tokmill pretrain, this is tokmill import"):
        tokmill.import_dataset(
            files, trainer="megatron", output=single.directory, tokenizer=TOKENIZER, progress=False
        )


@pytest.mark.parametrize("ending", ["idx", "mask"])
def test_a_file_beside_the_tokens_that_changes_is_found(
    bring, tmp_path, tokenizer_dir, ending
) -> None:
    prefix = write_megatron(tmp_path / "a", [[5, 6, EOS], [7, EOS]])
    (tmp_path / "a.mask").write_bytes(bytes([0, 1, 1, 0, 1]))
    bring(prefix, "megatron")
    path = tmp_path / f"a.{ending}"
    path.write_bytes(path.read_bytes())
    with pytest.raises(StateError, match=r"a\.bin has changed"):
        bring(prefix, "megatron")
    bring(prefix, "megatron", overwrite=True)
    # The same while an array works on it.
    command = ["import", str(prefix), "--from", "megatron", "-t", str(tokenizer_dir)]
    output = str(tmp_path / "array")
    assert CliRunner().invoke(cli, [*command, "-o", output, "--write-plan"]).exit_code == 0
    path.write_bytes(path.read_bytes())
    with pytest.raises(StorageError, match=r"a file beside it was changed since"):
        tokmill.run_part(output, index=0, of=1)


def test_a_file_without_a_trained_sample_is_no_error_beside_others(bring, tmp_path) -> None:
    for name, masks in (("a", [[0, 1]]), ("b", [[0, 0]])):
        write_datatrove(tmp_path / f"{name}.ds", [[5, EOS]], masks)
    assert len(bring(tmp_path, "datatrove")) == 1
    with pytest.raises(RecordError, match=r"b\.ds: no document to import"):
        bring(tmp_path / "b.ds", "datatrove", output="none")


@pytest.mark.parametrize("workers", [-1, 257])
def test_workers_out_of_range_are_refused(bring, files, workers: int) -> None:
    with pytest.raises(UsageError, match=r"workers: expected 0 to 256, found"):
        bring(files, "megatron", workers=workers)


def test_counts_do_not_depend_on_blocks(bring, tmp_path, block_tokens) -> None:
    documents = [[5, 6, EOS], [], [7, EOS], [8, 9, EOS], [6, EOS]]
    masks = [[1, 0, 1], [], [0, 0], [1, 1, 1], [0, 1]]
    made = bring(write_datatrove(tmp_path / "a.ds", documents, masks), "datatrove")
    record = json.loads((made.directory / "parts" / "0000000.json").read_bytes())
    assert record["slices"] == [
        {
            "slice": 0,
            "records": 5,
            "documents": 3,
            "tokens": 8,
            "text_bytes": 0,
            "input_bytes": 20,
            "trained_tokens": 4,
            "drops": {"no token": 1, "no trained token": 1},
            "rejects": {},
            "counters": {"first token of a sample no longer trained": 2},
        }
    ]


def test_an_import_stands_in_a_store_that_fails(files, whole, tmp_path, tokenizer_dir, request):
    faults, url = (request.getfixturevalue(name) for name in ("faults", "url"))
    faults.share = 0.02
    tokmill.import_dataset(
        files, trainer="megatron", val=tmp_path / f"{N_FILES - 1}", tokenizer=tokenizer_dir,
        output=url, progress=False,
    )  # fmt: skip
    faults.share = 0.0
    place = open_place(url)
    names = [name for name in place.entries() if not name.endswith("manifest.json")]
    assert {name: place.read(name) for name in names} == whole
