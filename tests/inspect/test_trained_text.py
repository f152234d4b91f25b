from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tokmill.inspect.samples import evenly_spread
from tokmill.inspect.trained_text import check_trained_text
from tokmill.run.finish import run
from tokmill.settings.sft import SftSettings
from tokmill.tokenizer.kept import tokenizer_of

SAMPLES = Path(__file__).parents[2] / "data_samples"


@pytest.fixture(scope="module")
def make(configure, silent, tmp_path_factory):
    """Give a function that makes a dataset of chats, and gives its directory and manifest."""

    def make_dataset(*replies: str, **settings):
        directory = tmp_path_factory.mktemp("chats")
        path = directory / "in.jsonl"
        rows = [{"prompt": "?", "completion": reply} for reply in replies]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        config = configure(
            directory / "out",
            path,
            path=str(SAMPLES / "tokenizer"),
            sft=SftSettings(template="chatml", **settings),
        )
        return directory / "out", run(config, silent)

    return make_dataset


def problems(directory: Path, manifest) -> list[str]:
    numbers = evenly_spread(manifest.totals.documents, 100)
    return check_trained_text(directory, manifest, tokenizer_of(directory, manifest, ""), numbers)


def test_what_a_run_wrote_is_right(make):
    assert problems(*make("Hello", " 猫 👍", "<think>x</think><|im_end|>", "")) == []


def test_a_mask_that_cuts_a_character_is_told(make):
    directory, manifest = make("a 𠮷 b")
    path = directory / "train-0000000-0000.mask"
    path.chmod(0o644)
    mask = np.fromfile(path, np.uint8)
    tokens = np.fromfile(path.with_suffix(".bin"), np.uint16)
    cut = int(np.flatnonzero(mask)[2])
    assert len(tokens) == len(mask)
    mask[cut] = 0
    path.write_bytes(mask.tobytes())
    assert set(problems(directory, manifest)) == {
        "sample 0: a trained text has an incomplete character"
    }


def test_tokens_that_the_reference_does_not_give_are_told(make):
    directory, manifest = make("\n\nHello")
    path = directory / "train-0000000-0000.mask"
    path.chmod(0o644)
    mask = np.fromfile(path, np.uint8)
    header = int(np.flatnonzero(mask)[0]) - 1
    mask[header] = 1
    path.write_bytes(mask.tobytes())
    (found,) = problems(directory, manifest)
    assert found.startswith(r"sample 0: the trained text '\n\n\nHello' has other tokens")


def test_with_boundary_joint_nothing_is_promised(make):
    assert problems(*make("\n\nHello", boundary="joint")) == []
