"""One dataset is in a mix once, whatever its path is called; and what messages say of values."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tokmill
from tokmill.api.dataset import Dataset
from tokmill.errors import UsageError


@pytest.fixture
def place(make: Callable[..., Dataset], tmp_path, monkeypatch) -> Path:
    """The current directory, with a dataset `a` and other ways to it."""
    shutil.copytree(make(["one", "two"]).directory, tmp_path / "a")
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "other",
    ["x/../a", "./a", "a/", "a/.", "link", "link/", "ABSOLUTE/a", "a#texts.jsonl",
     "link#texts.jsonl", "x/../a=2x"],
)  # fmt: skip
def test_a_dataset_under_two_names_is_refused(place, other) -> None:
    other = other.replace("ABSOLUTE", str(place))
    name = other.removesuffix("=2x")
    for names, first in ((["a", other], "a"), ([other, "a"], name)):
        with pytest.raises(
            UsageError, match=r"its documents are in .*, too: .*=2x writes"
        ) as found:
            tokmill.mix(names, output="out", progress=False)
        assert f"{first}=2x" in str(found.value)
        assert "\n" not in str(found.value)


@pytest.mark.parametrize("copy", [shutil.copytree, "links"])
def test_a_copy_is_mixed_with_a_warning(place, copy, caplog) -> None:
    shutil.copytree("a", "b", copy_function=os.link if copy == "links" else shutil.copy2)
    mixed = tokmill.mix(["a", "b"], output="out", progress=False)
    assert len(mixed) == 4
    assert "b: 1 shard of 1 are those of a" in caplog.text
    caplog.clear()
    tokmill.mix(["a", "b"], output="other", dedup=True, progress=False)
    assert "those of a" not in caplog.text


def test_a_dataset_and_a_merge_of_it_are_mixed_with_a_warning(place, make, caplog) -> None:
    other = make(["three"])
    tokmill.mix(["a", other.directory], output="merged", progress=False)
    tokmill.mix(["a", "merged"], output="out", progress=False)
    assert "merged: 1 shard of 2 are those of a" in caplog.text


def test_a_message_names_values_as_users_do(chats, unpacked, tmp_path) -> None:
    weighted = tokmill.sft(
        tmp_path_file(tmp_path), tokenizer=tokenizer_of(chats), output=tmp_path / "w",
        weights="file", progress=False,
    )  # fmt: skip
    with pytest.raises(UsageError) as found:
        tokmill.mix([unpacked.directory, weighted.directory], output=tmp_path / "o", progress=False)
    message = str(found.value)
    assert "the place of weights is .weight files, that of" in message
    assert "is none: datasets of a mix must agree" in message
    assert not {"()", "[", "None", "{"} & set(message)


def tmp_path_file(tmp_path: Path) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text(
        '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],'
        ' "weight": 0.5}\n'
    )
    return path


def tokenizer_of(dataset: Dataset) -> str:
    return str(dataset.manifest["config"]["tokenizer"]["path"])
