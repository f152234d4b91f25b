"""Write the frozen datasets: sets of small ones of every kind, which all later versions must read.

    python -m tests.frozen.make             write what is missing: kinds, or the next set
    python -m tests.frozen.make --wording   docs/format.md says the same in other words

`sets/N/` has datasets as the code of its date wrote them, and what is read from them. `set.json`
says when that was, and has the sum of docs/format.md: once the page has changed, a set of today is
due. What is there already stays, so that it goes on to be of the version that wrote it. Remove a
folder of `datasets/` and its entry in `expected.json` to write one again: with a reason, since
users have such files. A new rule or a new setting that decides bytes is such a reason for
`interrupted` alone: no run is continued under another one. A set that is newer than the last
release may be removed, and made again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers.pre_tokenizers import ByteLevel

import tokmill
from tests.frozen.reading import DAMAGES, damaged_reading, interrupted_reading, reading_of

HERE = Path(__file__).parent
INPUTS, SETS = HERE / "inputs", HERE / "sets"
PAGE = HERE.parents[1] / "docs" / "format.md"
MODIFIED_NS = 1_700_000_000_000_000_000
"""When all inputs were changed: a plan names it, and files in a repository have no such time."""

SPECIAL = ("<eos>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
    "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}"
    "<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
)
QUIET: dict[str, Any] = {
    "tokenizer": "inputs/tokenizer", "engine": "reference", "progress": False,
    "workers": 1, "threads": 1,
}  # fmt: skip
SEVERAL = """
[[source]]
name = "notes"
paths = ["inputs/documents.jsonl"]

[[source]]
name = "forum"
paths = ["inputs/forum.csv"]
template = "{subject}: {post}"
"""


@dataclass(frozen=True)
class FrozenSet:
    """A set of datasets that one version wrote, and what is read from each."""

    number: int

    @property
    def folder(self) -> Path:
        """Return where it stands."""
        return SETS / str(self.number)

    @property
    def datasets(self) -> Path:
        """Return the folder of its datasets."""
        return self.folder / "datasets"

    @property
    def about(self) -> dict[str, str]:
        """Return when it was written, and the sum of the page at that time."""
        return dict(json.loads((self.folder / "set.json").read_text("utf-8")))

    @property
    def expected(self) -> dict[str, Any]:
        """Return what is read from each dataset, by its name."""
        path = self.folder / "expected.json"
        return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}

    @property
    def finished(self) -> list[str]:
        """Return the names of its finished datasets."""
        return sorted(set(self.expected) - {"interrupted", "damaged"})

    def save(self, name: str, value: dict[str, Any]) -> None:
        """Write one of its two files."""
        text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
        (self.folder / name).write_text(text, "utf-8")


def frozen_sets() -> list[FrozenSet]:
    """Return all sets, the oldest first."""
    return [FrozenSet(n) for n in sorted(int(path.name) for path in SETS.iterdir())]


def page_sum() -> str:
    """Return the sum of the words of docs/format.md: where its lines end does not matter."""
    words = " ".join(PAGE.read_text("utf-8").split())
    return hashlib.sha256(words.encode()).hexdigest()


def write_inputs() -> None:
    """Write the tokenizer: the 256 bytes, three control tokens and two merges."""
    folder = INPUTS / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    tokens = [*SPECIAL, *sorted(ByteLevel.alphabet()), "th", "the"]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [{"id": i, "content": name, "special": True, **flags} for i, name in enumerate(SPECIAL)]
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    content = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {**level, "use_regex": False},
        "decoder": {**level, "use_regex": False},
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [["t", "h"], ["th", "e"]],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False))
    named = {"eos_token": "<eos>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(named))


def prepare(folder: Path, frozen: FrozenSet) -> None:
    """Copy inputs and the datasets of a set into a folder, with the times that plans name."""
    shutil.copytree(INPUTS, folder / "inputs")
    if frozen.datasets.is_dir():
        shutil.copytree(frozen.datasets, folder / "datasets")
    for path in (folder / "inputs").rglob("*"):
        os.utime(path, ns=(MODIFIED_NS, MODIFIED_NS))


def pretrain(*inputs: str, **settings: Any) -> Callable[[str], None]:
    """Return what makes a dataset of documents."""
    names = [f"inputs/{name}" for name in inputs or ("documents.jsonl",)]

    def make(output: str) -> None:
        tokmill.pretrain(names, output=output, **{**QUIET, **settings})

    return make


def sft(*inputs: str, **settings: Any) -> Callable[[str], None]:
    """Return what makes a dataset of chats."""
    names = [f"inputs/{name}" for name in inputs or ("chats.jsonl",)]

    def make(output: str) -> None:
        given = {**QUIET, **settings}
        tokmill.sft(names, output=output, **given)

    return make


def of_sources(output: str) -> None:
    """Make a dataset of two named sources."""
    Path("several.toml").write_text(SEVERAL)
    tokmill.pretrain(config="several.toml", output=output, **QUIET)


def packed_later(output: str) -> None:
    """Make a dataset of documents, and pack it."""
    pretrain(shard_tokens=60)(output)
    tokmill.pack(output, 24, last="drop")


def imported(output: str) -> None:
    """Import the tokens of another dataset, as nanoGPT has them."""
    documents = list(tokmill.open("datasets/documents"))
    Path("inputs/nanogpt").mkdir(exist_ok=True)
    np.concatenate(documents[:4]).tofile("inputs/nanogpt/train.bin")
    np.concatenate(documents[4:]).tofile("inputs/nanogpt/val.bin")
    tokmill.import_dataset(
        "inputs/nanogpt", trainer="nanogpt", output=output, tokenizer="inputs/tokenizer",
        progress=False,
    )  # fmt: skip


def imported_chats(output: str) -> None:
    """Import rows of ids with weights, packed."""
    tokmill.import_dataset(
        "inputs/rows.jsonl", trainer="jsonl", output=output, tokenizer="inputs/tokenizer",
        packing=24, progress=False,
    )  # fmt: skip


def mixed(*inputs: str, **settings: Any) -> Callable[[str], None]:
    """Return what makes a mix of frozen datasets."""
    names = {f"datasets/{name.split('=')[0]}": name.split("=")[1] for name in inputs}

    def make(output: str) -> None:
        tokmill.mix(names, output=output, progress=False, **settings)

    return make


def interrupted(output: str) -> None:
    """Make a run of several parts, and take away what a kill in its last part would leave out."""
    pretrain(part_bytes=120)(output)
    manifest = json.loads(Path(output, "manifest.json").read_bytes())
    record = max(Path(output, "parts").iterdir())
    for file in manifest["files"]:
        if f"-{record.stem}-" in file["name"]:
            Path(output, file["name"]).unlink()
    Path(output, "manifest.json").unlink()
    record.unlink()


KINDS: dict[str, Callable[[str], None]] = {
    "documents": pretrain(val_fraction=0.3, shard_tokens=60, part_bytes=200),
    "wide": pretrain(dtype="uint32"),
    "sha256": pretrain(checksum="sha256"),
    "bos": pretrain(bos_token="<|im_start|>"),
    "unread": pretrain("cut.jsonl.gz", on_unread="skip"),
    "compressed": pretrain("documents.jsonl.gz"),
    "kept": pretrain(keep=["url", "meta.n"]),
    "sections": pretrain("sections.jsonl"),
    "sources": of_sources,
    "packed": pretrain(packing=16, shard_tokens=60),
    "packed-few": pretrain(packing=32, max_samples_per_row=2),
    "packed-later": packed_later,
    "rejects": pretrain("broken.jsonl", max_reject_fraction=1.0),
    "chats": sft(val_fraction=0.3),
    "chats-wide": sft(dtype="uint32", shard_tokens=100),
    "chats-weights": sft("weighted.jsonl", weights="file"),
    "chats-packed": sft(packing=96, max_tokens=96),
    "chats-rows": sft("weighted.jsonl", packing=96, packed_rows=True, weights="file"),
    "imported": imported,
    "imported-chats": imported_chats,
    "mix": mixed("documents=2x", "wide=1x", shuffle=7, dtype="uint32"),
    "mix-linked": mixed("documents=1x", "kept=1x"),
    "mix-planned": mixed("documents=2x", shuffle=7, shard_tokens=60),
    "mix-against": mixed("documents=2x", shuffle=7, against="inputs/held-out.jsonl", ngram=3),
    "mix-chats": mixed("chats=2x", shuffle=7, dedup="mark"),
    "interrupted": interrupted,
}


def main() -> None:
    """Write what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--wording", action="store_true")
    options = parser.parse_args()
    if not (INPUTS / "tokenizer").is_dir():
        write_inputs()
    newest = frozen_sets()[-1]
    if options.wording:
        newest.save("set.json", {**newest.about, "page": page_sum()})
    if newest.about["page"] != page_sum():
        newest = FrozenSet(newest.number + 1)
        newest.datasets.mkdir(parents=True)
        today = datetime.now(UTC).date().isoformat()
        newest.save("set.json", {"date": today, "page": page_sum()})
    write(newest)


def write(frozen: FrozenSet) -> None:
    """Write the kinds that a set lacks, and what is read from them."""
    expected = frozen.expected
    for name, make in KINDS.items():
        stored = frozen.datasets / name
        if stored.is_dir() and name in expected:
            continue
        with tempfile.TemporaryDirectory(prefix="tokmill-frozen-") as desk, chdir(desk):
            prepare(Path(desk), frozen)
            if stored.is_dir():
                shutil.copytree(stored, "made")
            else:
                make("made")
                Path("made/.lock").unlink(missing_ok=True)
                if name == "imported":
                    shutil.copytree("inputs/nanogpt", INPUTS / "nanogpt", dirs_exist_ok=True)
                shutil.copytree("made", stored)
            read = interrupted_reading if name == "interrupted" else reading_of
            expected[name] = read(Path("made"))
        print(name)
        frozen.save("expected.json", expected)
    for damage in DAMAGES:
        if damage not in expected.setdefault("damaged", {}):
            with tempfile.TemporaryDirectory(prefix="tokmill-frozen-") as desk, chdir(desk):
                prepare(Path(desk), frozen)
                expected["damaged"][damage] = damaged_reading(damage)
    frozen.save("expected.json", expected)


if __name__ == "__main__":
    main()
