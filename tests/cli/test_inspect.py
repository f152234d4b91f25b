"""`tokmill inspect` on a dataset of SFT and on one for pretraining, as a user types it."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Library

import tokmill as package

TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\n' -}}
{%- if message.role == 'assistant' -%}
{%- generation -%}{{- message.content + '<eos>' -}}{%- endgeneration -%}
{%- else -%}
{{- message.content + '<eos>' -}}
{%- endif -%}
{{- '\n' -}}
{%- endfor -%}"""

CHATS = [
    ("hello", "there"),
    ("what is <eos>?", "\n猫 <script>alert(1)</script>\n"),
    ("the cat", "  the hat </style>\n"),
    ("123", "هلا 123 «ok»"),
    ("狗狗", "\n"),
]


@pytest.fixture(scope="module")
def sft(tmp_path_factory: pytest.TempPathFactory, tokenizer_dir: Path, write_rows: Any) -> Path:
    """Make a packed dataset of `CHATS`, and give its directory."""
    place = tmp_path_factory.mktemp("inspected")
    (place / "t.jinja").write_text(TEMPLATE)
    rows = [
        {"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
        for q, a in CHATS
    ]
    return package.sft(
        write_rows(place / "chats.jsonl", rows), tokenizer=tokenizer_dir, output=place / "out",
        template=str(place / "t.jinja"), max_tokens=200, packing=200, engine="reference",
    ).directory  # fmt: skip


def files_of_shard(directory: Path) -> tuple[np.ndarray, np.ndarray]:
    path = directory / "train-0000000-0000.bin"
    return np.fromfile(path, "<u2"), np.fromfile(path.with_suffix(".mask"), "u1")


def test_a_sample_is_shown_with_what_is_trained(tokmill, sft):
    outcome = tokmill("inspect", sft, "--document", "1")
    assert outcome.code == 0
    counts = json.loads(tokmill("inspect", sft, "-n", "1", "--json").out)
    n_tokens, n_trained = counts["tokens"], counts["trained_tokens"]
    assert outcome.out.split("\n") == [
        "«trained»  untrained  ‹control›  «‹trained control›»  "
        r"⏎ newline at a trained edge  \x.. byte of a split character",
        "",
        f"sample 1 (train-0000000-0000, {n_tokens} tokens, {n_trained} trained, "
        f"{n_trained / n_tokens:.1%}, from {counts['origin']['path']}, record 2, byte 96)",
        "‹<|im_start|>›user",
        "what is <eos>?‹<eos>›",
        "‹<|im_start|>›assistant",
        "«⏎",
        "猫 <script>alert(1)</script>",
        "‹<eos>›»",
        "",
        "",
        "",
    ]


def test_json_has_the_mask_and_the_trained_text_as_the_files_have_them(tokmill, sft, tokenizer_dir):
    lines = tokmill("inspect", sft, "--sample", "9", "--json", "--tokens").out.splitlines()
    found = [json.loads(line) for line in lines]
    shown = tokmill("inspect", sft, "-n", "0", "--ids").out.splitlines()
    assert shown[3] == " ".join(map(str, found[0]["ids"]))
    ids, mask = files_of_shard(sft)
    assert [id_ for values in found for id_ in values["ids"]] == ids.tolist()
    assert [value for values in found for value in values["mask"]] == mask.tolist()
    assert [values["trained_text"] for values in found] == [a + "<eos>" for _, a in CHATS]
    assert all(set(values) == {*found[0]} for values in found)
    library = Library.from_file(str(tokenizer_dir / "tokenizer.json"))
    texts = [library.decode(values["ids"], skip_special_tokens=False) for values in found]
    assert [values["text"] for values in found] == texts


def test_a_row_shows_its_samples_one_after_the_other(tokmill, sft):
    lines = tokmill("inspect", sft, "--row", "0", "--json").out.splitlines()
    found = [json.loads(line) for line in lines]
    starts, rows = 0, {values["row"] for values in found}
    assert rows == {0}
    for values in found:
        assert values["row_start"] == starts
        starts += values["tokens"]
    out = tokmill("inspect", sft, "--row", "0").out
    assert out.startswith(
        f"row 0 of train: {len(found)} samples, {starts} of 200 tokens ({starts / 200:.1%})\n"
    )
    numbers = [line.split(" ")[1] for line in out.splitlines() if line.startswith("sample ")]
    assert numbers == [str(values["document"]) for values in found]
    assert f", from token {found[1]['row_start']} of the row, from " in out


# The page


def test_a_page_replaces_a_file_as_a_whole_and_belongs_to_its_owner(tokmill, sft, tmp_path):
    assert tokmill("inspect", sft, "--html", tmp_path / "real.html").code == 0
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")
    outcome = tokmill("inspect", sft, "--sample", "5", "--html", tmp_path / "link.html")
    assert outcome.out.startswith(f"{tmp_path / 'link.html'}: 5 samples, ")
    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_text().endswith("</html>\n")
    assert stat.S_IMODE((tmp_path / "real.html").stat().st_mode) == 0o644
    assert not list(tmp_path.glob(".*.tmp"))


def test_a_page_is_not_written_over_what_is_no_file_or_the_dataset_s_own(tokmill, sft, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        outcome = tokmill("inspect", sft, "--html", path)
        assert outcome.code == 2
        assert outcome.error == f"{path}: not a file: --html wants the name of a file to write"
    for name, of_others in (("corpus.jsonl", "{}"), ("thesis.html", "<!doctype html>\n<html>")):
        (tmp_path / name).write_text(of_others)
        (tmp_path / "link.html").unlink(missing_ok=True)
        (tmp_path / "link.html").symlink_to(tmp_path / name)
        for path in (tmp_path / name, tmp_path / "link.html"):
            for command in ("inspect", "report"):
                outcome = tokmill(command, sft, "--html", path)
                assert (outcome.code, (tmp_path / name).read_text()) == (2, of_others)
                assert outcome.error.endswith(
                    "is there, and no page of tokmill: name another file for --html"
                )
    before = (sft / "manifest.json").read_bytes()
    for name in ("manifest.json", "train-0000000-0000.bin", "parts/page.html", "page.html"):
        outcome = tokmill("inspect", sft, "--html", sft / name)
        assert outcome.code == 2
        assert "is inside the dataset" in outcome.error
    assert (sft / "manifest.json").read_bytes() == before
    assert tokmill("inspect", sft, "--html", tmp_path / "no" / "p.html").code == 5


def test_a_closed_standard_output_is_no_bug(sft):
    command = f"{shlex.quote(sys.executable)} -m tokmill inspect {sft} >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# What cannot be


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--row", "1", "-n", "0"), "--row shows the samples of one row"),
        (("--row", "1", "--sample", "2"), "--row shows the samples of one row"),
        (("--json", "--html", "p.html"), "choose one"),
        (("--sample", "-3"), "expected 0 or more"),
        (("--max-chars", "-1"), "expected 0 or more"),
        (("--row", "99"), "no row 99 of train; it holds 0 to 0"),
        (("-n", "5"), "no document 5; it holds 0 to 4"),
        (("-n", "1", "--split", "train"), "--row and --document: leave --split, --source and"),
    ],
)
def test_what_cannot_be_shown_is_a_line(tokmill, sft, flags, message):
    outcome = tokmill("inspect", sft, *flags)
    assert outcome.code == 2
    assert message in outcome.error
