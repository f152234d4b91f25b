"""A program in C, written from docs/format.md alone, reads the same as tokmill.

`python -m bench.second_reader` tries many more datasets and damages.
"""

from __future__ import annotations

import json
import shutil
from contextlib import chdir
from pathlib import Path

import pytest

import tokmill
from bench import second_reader
from bench.second_reader import MAKERS, SecondReader, difference, make_dataset
from tests.frozen.make import FrozenSet, frozen_sets
from tokmill.dataset.checksum import json_chunks, manifest_sha256

pytestmark = pytest.mark.skipif(not second_reader.c_compiler(), reason="no C compiler: cc")
SEED, N_DAMAGES = "tests", 40


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> SecondReader:
    return SecondReader(tmp_path_factory.mktemp("reader"))


@pytest.mark.parametrize("frozen", frozen_sets(), ids=lambda frozen: str(frozen.number))
def test_the_second_reader_reads_frozen_datasets_as_tokmill_does(
    reader: SecondReader, frozen: FrozenSet
) -> None:
    for name in frozen.finished:
        assert difference(reader, tokmill.open(frozen.datasets / name)) == "", name


def test_both_read_random_datasets_and_find_the_same_damages(
    reader: SecondReader, tmp_path: Path
) -> None:
    folders = [tmp_path / maker.__name__ for maker in MAKERS]
    for number, folder in enumerate(folders):
        folder.mkdir()
        with chdir(folder):
            assert difference(reader, make_dataset(SEED, number)) == "", folder.name
    outcome = second_reader.corrupt(
        reader, SEED, range(N_DAMAGES), second_reader.make_desks(folders)
    )
    assert outcome.problems == []
    assert outcome.counts["found by both"] > N_DAMAGES / 2


def test_the_second_reader_refuses_a_later_version_and_what_is_not_finished(
    reader: SecondReader, tmp_path: Path
) -> None:
    datasets = frozen_sets()[-1].datasets
    shutil.copytree(datasets / "sha256", tmp_path / "later")
    path = tmp_path / "later" / "manifest.json"
    manifest = json.loads(path.read_bytes()) | {"format_version": 2}
    manifest["sha256"] = manifest_sha256(manifest)
    path.chmod(0o644)
    path.write_bytes(b"".join(json_chunks(manifest)))
    assert [reader.read(one).status for one in (path.parent, datasets / "interrupted")] == [2, 2]
