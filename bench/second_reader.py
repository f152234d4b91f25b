"""Hold tokmill against a second reader of its format, in C, which was written from the page alone.

    python -m bench.second_reader --datasets 300 --corruptions 300 [--seed 1]

`tests/second_reader/reader.c` is compiled with the C compiler that is here. It must print of random
datasets what `tokmill.open` reads. Then it must find each random damage, and each forgery, a change
of a file to which all sums were mended, that `tokmill verify` finds. What neither finds are bytes
that no promise covers: another id of the vocabulary, another record. Only lines of `rejects/` are
read by the reader alone. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import chdir, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.corruptions import DAMAGES, OF_BYTES, Desk
from tokmill.errors import RecordError, UsageError

if TYPE_CHECKING:
    from tokmill.api.dataset import Dataset

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "tests" / "second_reader" / "reader.c"
TOKENIZER = ROOT / "data_samples" / "tokenizer"
SANITIZED = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""Flags with which a read outside of memory ends the reader."""

MOST_DESKS = 25
"""Datasets of which copies are damaged."""

_QUIET: dict[str, Any] = {"progress": False}
_RUN: dict[str, Any] = {**_QUIET, "tokenizer": TOKENIZER, "engine": "reference", "workers": 1}
_FORGED_ENDINGS = (".bin", ".idx", ".mask", ".weight", ".origin", ".jsonl")
_WORDS = ("the", "cat", "猫", "été", "🙂", "x" * 40, "1 2 3", "\n", "a b")


@dataclass(frozen=True)
class Answer:
    """What the reader said of a dataset: its exit status, the lines it printed, its problem."""

    status: int
    lines: list[str]
    problem: str


class SecondReader:
    """The compiled program."""

    def __init__(self, directory: Path, flags: tuple[str, ...] = ("-O1",)) -> None:
        self._program = directory / "reader"
        words: list[str | Path] = [
            c_compiler(),
            "-std=c11",
            "-Wall",
            "-Werror",
            *flags,
            "-o",
            self._program,
            SOURCE,
        ]
        subprocess.run(words, check=True)

    def read(self, directory: Path) -> Answer:
        """Return what it says of a dataset."""
        done = subprocess.run(
            [self._program, directory],
            capture_output=True,
            timeout=60,
            check=False,
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
        )
        lines = done.stdout.decode("utf-8", "surrogateescape").splitlines()
        return Answer(done.returncode, lines, done.stderr.decode(errors="replace").strip())


def c_compiler() -> str:
    """Return the name of the C compiler; '' if there is none."""
    name = os.environ.get("CC", "cc")
    return name if shutil.which(name) else ""


def expected_lines(dataset: Dataset) -> list[str]:
    """Return the lines that the reader must print of a dataset, by what tokmill reads."""
    lines, number = [f"identity {dataset.identity}"], 0
    for shard in dataset.shards:
        for i in range(shard.documents):
            lines.append(f"{shard.name} {i} {_document(dataset, number)}")
            number += 1
    for split, packs in sorted(dataset.packs.items()):
        stem = f"packs-{split}"
        entry = dataset.manifest["packs"][split]
        if "last" in entry:
            stem = f"{stem}-{entry['capacity']}-{entry['last']}"
            stem += f"-{entry['max_samples_per_row']}" if "max_samples_per_row" in entry else ""
        lengths = dataset.split(split).lengths.tolist()
        for row in range(packs.n_rows):
            pieces = zip(packs.row(row).tolist(), packs.row_pieces(row), strict=True)
            shown = [f"{i}[{p.start or 0}:{p.stop or lengths[i]}]" for i, p in pieces]
            lines.append(f"{stem} row {row} {' '.join(shown)}")
    names = [f"{kind}-*.bin" for kind in ("contaminated", "duplicates")]
    marks = [path for name in names for path in sorted(dataset.directory.glob(name))]
    return lines + [f"{path.name} {''.join(map(str, path.read_bytes()))}" for path in marks]


def _document(dataset: Dataset, number: int) -> str:
    """Return the end of the line of a document."""
    parts = ["ids", *map(str, dataset[number].tolist())]
    if dataset.kind == "sft":
        parts += ["mask", "".join(map(str, dataset.mask(number).tolist()))]
    if dataset.has_weights:
        parts += ["weights", *(f"{weight:.9g}" for weight in dataset.weight(number).tolist())]
    if "first_slice" in dataset.manifest["shards"][0]:
        at = dataset.origin(number)
        parts += [f"record {at.record} byte {at.byte} of {at.path}"]
    return " ".join(parts)


# ---- random datasets ----


def _text(chance: random.Random) -> str:
    return " ".join(chance.choices(_WORDS, k=chance.choice([1, 2, 5, 20, 80])))


def _write_records(chance: random.Random, record: Callable[[random.Random], Any]) -> Path:
    """Write records, some of them broken, in one of a few formats, and return their file."""
    records = [record(chance) for _ in range(chance.randint(3, 40))]
    lines = [json.dumps(one, ensure_ascii=chance.random() < 0.5) for one in records]
    if chance.random() < 0.2:
        Path("records.json").write_text(f"[{', '.join(lines)}]", "utf-8")
        return Path("records.json")
    for i in range(len(lines)):
        if chance.random() < 0.05:
            lines[i] = chance.choice(['{"text": ', '{"text": 3}', "[]"])
    Path("records.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return Path("records.jsonl")


def _settings(chance: random.Random) -> dict[str, Any]:
    """Return settings that every run knows."""
    return {
        **_RUN,
        "checksum": chance.choice(["blake3", "sha256"]),
        "dtype": chance.choice(["auto", "uint32"]),
        "val_fraction": chance.choice([0, 0.3]),
        "part_bytes": chance.choice([200, 2000, 100_000]),
        "shard_tokens": chance.choice([50, 300, 100_000]),
        "max_reject_fraction": 1.0,
        "max_empty_fraction": 1.0,
    }


def documents(chance: random.Random, output: str) -> Dataset:
    """Make a dataset of documents."""
    import tokmill

    def record(chance: random.Random) -> Any:
        return {"text": _text(chance), "url": chance.choice([None, "u", 1.50])}

    settings = _settings(chance)
    if chance.random() < 0.3:
        settings["keep"] = ["url"]
    if chance.random() < 0.3:
        settings["packing"] = chance.choice([8, 30, 500])
        settings["max_samples_per_row"] = chance.choice([None, 1, 3])
    if chance.random() < 0.2:
        settings["bos_token"] = "<bos>"
    if chance.random() < 0.3:
        settings["min_tokens"] = 4
    return tokmill.pretrain(_write_records(chance, record), output=output, **settings)


def chats(chance: random.Random, output: str) -> Dataset:
    """Make a dataset of chats."""
    import tokmill

    has_weights = chance.random() < 0.4

    def record(chance: random.Random) -> Any:
        messages = []
        for _ in range(chance.randint(1, 3)):
            answer: dict[str, Any] = {"role": "assistant", "content": _text(chance).strip() or "x"}
            if has_weights:
                answer["weight"] = chance.choice([0.25, 1, 3.3])
            messages += [{"role": "user", "content": _text(chance)}, answer]
        return {"messages": messages}

    settings = _settings(chance)
    if has_weights:
        settings["weights"] = "file"
    if chance.random() < 0.5:
        settings["packing"] = settings["max_tokens"] = chance.choice([200, 600])
        settings["packed_rows"] = chance.random() < 0.5
        settings["max_samples_per_row"] = chance.choice([None, 1, 3])
    return tokmill.sft(_write_records(chance, record), output=output, **settings)


def mixture(chance: random.Random, output: str) -> Dataset:
    """Make a mix of one or two datasets of a kind, in the working directory."""
    import tokmill

    make = chance.choice([documents, chats])
    shares: dict[str, Any] = {}
    for name in ("one", "two")[: chance.randint(1, 2)]:
        while not Path(name, "manifest.json").is_file():
            shutil.rmtree(name, ignore_errors=True)
            with suppress(RecordError):
                make(chance, name)
        shares[name] = chance.choice(["1x", "2.5x", "0.5x"])
    settings: dict[str, Any] = {"shard_tokens": chance.choice([50, 300, 100_000])}
    if chance.random() < 0.7:
        settings["shuffle"] = chance.randrange(100)
    if chance.random() < 0.5:
        settings["dedup"] = chance.choice(["drop", "mark"])
    if chance.random() < 0.3:
        Path("held-out.jsonl").write_text(json.dumps({"text": "the cat " * 8}) + "\n", "utf-8")
        settings |= {"against": ["held-out.jsonl"], "ngram": 4}
    return tokmill.mix(shares, output=output, workers=1, **_QUIET, **settings)


def imported(chance: random.Random, output: str) -> Dataset:
    """Import rows of ids, chats or not."""
    import tokmill

    rows = []
    for _ in range(chance.randint(1, 20)):
        ids = [chance.randrange(1, 400) for _ in range(chance.randint(1, 30))]
        rows.append({"input_ids": [*ids, 0], "loss_mask": [0, *[1] * len(ids)]})
    if chance.random() < 0.5:
        rows = [{"input_ids": row["input_ids"]} for row in rows]
    return tokmill.import_dataset(
        rows, trainer="jsonl", output=output, tokenizer=TOKENIZER, workers=1, **_QUIET
    )


def packed_later(chance: random.Random, output: str) -> Dataset:
    """Make a dataset of documents or an import of them, and pack it once or twice."""
    import tokmill

    made = documents(chance, output)
    for _ in range(chance.randint(1, 2)):
        made = tokmill.pack(
            output,
            chance.choice([5, 17, 400]),
            last=chance.choice(["fragment", "drop"]),
            max_samples_per_row=chance.choice([None, 1, 4]),
        )
    return made


MAKERS = (documents, chats, mixture, imported, packed_later)


def make_dataset(seed: str, number: int) -> Dataset:
    """Make the random dataset of a number in the working directory; the same one each time.

    Raises:
        RuntimeError: fifty attempts made none.
    """
    chance = random.Random(f"{seed} {number}")
    make = MAKERS[number % len(MAKERS)]
    for _ in range(50):
        try:
            return make(chance, "made")
        except (RecordError, UsageError):  # nothing but rejects, or a mix of unlike datasets
            for path in Path().iterdir():
                shutil.rmtree(path, ignore_errors=True)
    raise RuntimeError(f"{make.__name__}: no dataset of seed {seed}, number {number}")


def difference(reader: SecondReader, dataset: Dataset) -> str:
    """Return the first difference between what the reader and tokmill read of a dataset, or ''."""
    answer, expected = reader.read(dataset.directory), expected_lines(dataset)
    if answer.status:
        return answer.problem
    pairs = zip_longest(answer.lines, expected, fillvalue="nothing")
    return next((f"{found!r}, not {one!r}" for found, one in pairs if found != one), "")


# ---- damage ----


def found_by_verify(directory: Path) -> str:
    """Return the first problem that tokmill finds in the files of a dataset, or ''."""
    from tokmill.dataset.reader import plain_manifest
    from tokmill.dataset.verify import verify
    from tokmill.errors import TokmillError
    from tokmill.place import open_place

    try:
        manifest = plain_manifest(directory, follow_links=False)
        problems = verify(open_place(str(directory)), manifest).problems
    except TokmillError as error:
        return str(error)
    return problems[0] if problems else ""


def forge(directory: Path, chance: random.Random) -> str:
    """Change the bytes of a file, mend all sums, and return what was done."""
    manifest = json.loads((directory / "manifest.json").read_bytes())
    names = [file["name"] for file in manifest["files"]]
    forged = [
        one for one in names if one.endswith(_FORGED_ENDINGS) and (directory / one).stat().st_size
    ]
    name, change = chance.choice(forged), chance.choice(OF_BYTES)
    data = (directory / name).read_bytes()
    new = data
    while new == data:
        name, change = chance.choice(forged), chance.choice(OF_BYTES)
        data = (directory / name).read_bytes()
        new = change(data, chance)
    _replace(directory / name, new)
    _mend(directory, manifest, name)
    return f"{change.__name__} of {name}"


def _mend(directory: Path, manifest: dict[str, Any], changed: str) -> None:
    """Write the sums of a changed file, and of the record of its part, where they are named."""
    from tokmill.dataset.checksum import canonical_json, json_chunks, manifest_sha256

    _mend_entries(directory, manifest["files"], changed)
    for path in sorted(directory.glob("parts/*.json")):
        record = json.loads(path.read_bytes())
        entries = [file for shard in record["shards"] for file in shard["files"]]
        entries += [record["rejects"]] if record["rejects"] else []
        if _mend_entries(directory, entries, changed):
            _replace(path, canonical_json(record))
            _mend_entries(directory, manifest["files"], f"parts/{path.name}")
    manifest["sha256"] = manifest_sha256(manifest)
    _replace(directory / "manifest.json", b"".join(json_chunks(manifest)))


def _mend_entries(directory: Path, entries: list[dict[str, Any]], name: str) -> bool:
    """Write size and sum of a file into its entry, and return whether there is one."""
    from tokmill.dataset.checksum import Digest

    data = (directory / name).read_bytes()
    found = [entry for entry in entries if entry["name"] == name]
    for entry in found:
        algorithm = "blake3" if "blake3" in entry else "sha256"
        digest = Digest(algorithm)
        digest.update(data)
        entry |= {"bytes": len(data), algorithm: digest.checksum()}
    return bool(found)


def _replace(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def make_desks(made: list[Path]) -> list[Desk]:
    """Return a desk for each directory in which a dataset was made; each has another's files."""
    others = [*made[1:], made[0]]
    return [
        Desk(one / "made", one / "work", other / "made")
        for one, other in zip(made, others, strict=True)
    ]


def damaged(seed: str, number: int, desk: Desk) -> str:
    """Damage the work of a desk, every second time by a forgery, and return what was done."""
    chance = random.Random(f"{seed} damage {number}")
    if number % 2:
        return forge(desk.work, chance)
    names = list(DAMAGES)
    name = names[number // 2 % len(names)]
    return f"{name} of {', '.join(DAMAGES[name](desk, chance))}"


@dataclass
class Outcome:
    """What came of the corruptions: found by both or neither, and where the two do not agree."""

    counts: Counter[str]
    problems: list[str]

    def add(self, done: str, answer: Answer, verified: str) -> None:
        """Add one corruption: what was done, and what the reader and tokmill said of it."""
        if answer.status not in (0, 1, 2):
            self.problems.append(f"{done}: the reader ended with {answer.status}: {answer.problem}")
        elif answer.status and verified:
            self.counts["found by both"] += 1
        elif answer.problem.startswith("rejects/"):
            self.counts["found by the second reader alone, in rejects/"] += 1
        elif answer.status:
            self.problems.append(f"{done}: found by the second reader alone: {answer.problem}")
        elif verified:
            self.problems.append(f"{done}: found by tokmill alone: {verified}")
        else:
            self.counts["in bytes that no promise covers"] += 1


def corrupt(reader: SecondReader, seed: str, numbers: Iterable[int], desks: list[Desk]) -> Outcome:
    """Damage copies of datasets, one at a time, and ask both."""
    outcome = Outcome(Counter(), [])
    for number in numbers:
        desk = desks[number // 2 % len(desks)]
        done = damaged(seed, number, desk)
        outcome.add(
            f"{desk.work.parent.name}: {done}", reader.read(desk.work), found_by_verify(desk.work)
        )
        shutil.rmtree(desk.work)
        shutil.copytree(desk.original, desk.work)
    return outcome


def main() -> None:
    """Try random datasets, then corruptions of the first ones; exit with 1 if something differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--datasets", type=int, default=300)
    parser.add_argument("--corruptions", type=int, default=300)
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    problems: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        reader = SecondReader(Path(directory), SANITIZED)
        kept: list[Path] = []
        for number in range(options.datasets):
            made = Path(directory, str(number))
            made.mkdir()
            with chdir(made):
                found = difference(reader, make_dataset(options.seed, number))
            if found:
                problems.append(f"dataset {number}: {found}")
                print(problems[-1], file=sys.stderr, flush=True)
            if len(kept) < MOST_DESKS:
                kept.append(made)
            else:
                shutil.rmtree(made)
        desks = make_desks(kept)
        outcome = corrupt(reader, options.seed, range(options.corruptions), desks)
    problems += outcome.problems
    print(*outcome.problems, sep="\n", file=sys.stderr)
    print(json.dumps({"datasets": options.datasets, **outcome.counts, "problems": problems}))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
