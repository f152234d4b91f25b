"""Damage finished datasets at random, and count what `tokmill verify` does not find.

    python -m bench.corruptions --count 10000 [--seed 1]

Each round damages one copy of a small dataset in one way, verifies it, and repairs it from the
original. The datasets have every file that tokmill writes: masks, weights, packs, packed rows,
rejects, validation shards. What is found must be named, without a traceback. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

SAMPLES = Path(__file__).parents[1] / "data_samples"
_MANIFEST = "manifest.json"
_MOST_BYTES = 64

SETTINGS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "pretrain": (
        "pretrain", "records.jsonl",
        {
            "part_bytes": "40kB", "shard_tokens": "20k", "val_fraction": 0.2,
            "max_reject_fraction": 1.0,
        },
    ),
    "pretrain with rejects": (
        "pretrain", "broken/broken.jsonl",
        {"renderer": "encyclopedia", "max_reject_fraction": 1.0, "checksum": "sha256"},
    ),
    "sft, packed rows": (
        "sft", "sft/mixed.jsonl",
        {
            "part_bytes": "4kB", "max_tokens": 1000, "packing": 1000, "packed_rows": True,
            "weights": "file", "val_fraction": 0.2, "max_reject_fraction": 1.0,
        },
    ),
}  # fmt: skip


class Desk:
    """A dataset that is damaged and repaired, beside the original and another dataset."""

    def __init__(self, original: Path, work: Path, other: Path) -> None:
        self.original, self.work, self.other = original, work, other
        shutil.copytree(original, work)
        self.names = sorted(
            path.relative_to(original).as_posix()
            for path in original.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        )

    def bytes_of(self, name: str) -> bytes:
        """Return the bytes of a file of the original."""
        return (self.original / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Replace a file, which is read-only, by one with these bytes."""
        self.remove(name)
        (self.work / name).write_bytes(data)

    def remove(self, name: str) -> None:
        """Remove what has this name."""
        path = self.work / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def repair(self, *names: str) -> None:
        """Make these names what they are in the original."""
        for name in names:
            self.remove(name)
            if (self.original / name).exists():
                shutil.copy2(self.original / name, self.work / name)


Touched = tuple[str, ...]


def flip(data: bytes, chance: random.Random) -> bytes:
    """Flip one bit."""
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def truncate(data: bytes, chance: random.Random) -> bytes:
    """Cut bytes off the end."""
    return data[: -chance.randint(1, len(data))]


def append(data: bytes, chance: random.Random) -> bytes:
    """Add bytes at the end."""
    return data + chance.choice([b"\n", b" ", b"\0", chance.randbytes(9)])


def insert_or_drop(data: bytes, chance: random.Random) -> bytes:
    """Move the bytes behind a place: insert some there, or leave some out."""
    at, n = chance.randrange(len(data)), chance.randint(1, _MOST_BYTES)
    return data[:at] + (chance.randbytes(n) + data[at:] if n % 2 else data[at + n :])


def exchange(data: bytes, chance: random.Random) -> bytes:
    """Exchange two pieces; the size stays."""
    n = chance.randint(1, min(_MOST_BYTES, max(1, len(data) // 2)))
    a, b = sorted(chance.randrange(max(1, len(data) - n)) for _ in range(2))
    if b < a + n:
        return data
    return data[:a] + data[b : b + n] + data[a + n : b] + data[a : a + n] + data[b + n :]


def zero(data: bytes, chance: random.Random) -> bytes:
    """Set a piece to zeros, as a lost block of a disk."""
    at = chance.randrange(len(data))
    n = min(len(data) - at, chance.choice([1, 16, 512, 4096]))
    return data[:at] + bytes(n) + data[at + n :]


def changed(
    change: Callable[[bytes, random.Random], bytes], desk: Desk, chance: random.Random, name: str
) -> Touched:
    """Change the bytes of a file; `name`: '' for any one that has bytes.

    Raises:
        RuntimeError: a hundred attempts changed nothing.
    """
    filled = [name] if name else [one for one in desk.names if desk.bytes_of(one)]
    for _ in range(100):
        one = chance.choice(filled)
        if (new := change(desk.bytes_of(one), chance)) != desk.bytes_of(one):
            desk.write(one, new)
            return (one,)
    raise RuntimeError(f"{change.__name__} changes no file")


def lose(desk: Desk, chance: random.Random) -> Touched:
    """Remove a file."""
    name = chance.choice(desk.names)
    desk.remove(name)
    return (name,)


def add(desk: Desk, chance: random.Random) -> Touched:
    """Add a file or directory that the run did not write."""
    folder = chance.choice(["", "parts/", "rejects/"])
    name = folder + chance.choice(
        ["notes.txt", "train-0000099-0000.bin", "0000099.json", "x", "manifest.json.bak", "猫"]
    )
    if chance.random() < 0.3:
        (desk.work / name).mkdir()
    else:
        (desk.work / name).write_bytes(chance.randbytes(chance.randrange(9)))
    return (name,)


def swap(desk: Desk, chance: random.Random) -> Touched:
    """Swap two files."""
    a = chance.choice(desk.names)
    b = chance.choice([name for name in desk.names if desk.bytes_of(name) != desk.bytes_of(a)])
    desk.write(a, desk.bytes_of(b))
    desk.write(b, desk.bytes_of(a))
    return a, b


def rename(desk: Desk, chance: random.Random) -> Touched:
    """Give a file another name."""
    name = chance.choice(desk.names)
    last = Path(name).name
    other = chance.choice([last.upper(), f"{last}.old", last.replace("0", "1", 1)])
    new = Path(name).with_name(other).as_posix()
    if (desk.work / new).exists() or new == name:
        new = f"{name}.old"
    (desk.work / name).rename(desk.work / new)
    return name, new


def of_other(desk: Desk, chance: random.Random) -> Touched:
    """Put the file of another dataset in place of one with the same name."""
    both = [name for name in desk.names if (desk.other / name).is_file()]
    different = [n for n in both if (desk.other / n).read_bytes() != desk.bytes_of(n)]
    name = chance.choice(different)
    desk.write(name, (desk.other / name).read_bytes())
    return (name,)


def no_file(desk: Desk, chance: random.Random) -> Touched:
    """Put a link, a directory, a pipe or a socket's kind of thing in place of a file."""
    name = chance.choice(desk.names)
    desk.remove(name)
    path = desk.work / name
    kind = chance.choice(["link", "dead link", "directory", "pipe"])
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(desk.original / name if kind == "link" else desk.work / "nowhere")
    return (name,)


def edit_manifest(desk: Desk, chance: random.Random) -> Touched:
    """Change one value of the manifest, anywhere in it."""
    from tokmill.dataset.checksum import json_chunks

    manifest = json.loads(desk.bytes_of(_MANIFEST))
    holder, key = chance.choice(list(_places(manifest)))
    value = holder[key]
    others: list[Any] = [None, 0, 1, -1, "", "x", [], {}, True, 1.5, "manifest.json", 1 << 70]
    if isinstance(value, int) and not isinstance(value, bool):
        others += [value + 1, value - 1, str(value), float(value) + 0.5]
    if isinstance(value, str):
        others += [value + "x", value[:-1], value.upper(), value.lower()]
    if chance.random() < 0.2:
        del holder[key]
    else:
        different = [one for one in others if (type(one), one) != (type(value), value)]
        holder[key] = chance.choice(different)
    desk.write(_MANIFEST, b"".join(json_chunks(manifest)))
    return (_MANIFEST,)


def restyle_manifest(desk: Desk, chance: random.Random) -> Touched:
    """Write the values of the manifest in other bytes: spaces, order, escapes, a key twice."""
    text = desk.bytes_of(_MANIFEST).decode()
    manifest = json.loads(text)
    new = (
        json.dumps(manifest, indent=1), json.dumps(dict(reversed(manifest.items()))),
        text + "\n", " " + text, "\ufeff" + text, text.replace(":", ": ", 1),
        text.replace("tokmill", "\\u0074okmill", 1),
        text.replace("{\n", '{\n"config":{},\n', 1), text.replace("\n", "\r\n"),
    )  # fmt: skip
    desk.write(_MANIFEST, chance.choice(new).encode())
    return (_MANIFEST,)


OF_BYTES = (flip, truncate, append, insert_or_drop, exchange, zero)
OF_FILES = (
    lose, add, swap, rename, of_other, no_file, edit_manifest, restyle_manifest,
)  # fmt: skip
DAMAGES: dict[str, Callable[[Desk, random.Random], Touched]] = {
    **{change.__name__: partial(changed, change, name="") for change in OF_BYTES},
    "flip in the manifest": partial(changed, flip, name=_MANIFEST),
    **{damage.__name__: damage for damage in OF_FILES},
}


def _places(value: Any) -> Any:
    """Yield each (container, key) below a value."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def is_found(directory: Path) -> tuple[bool, str]:
    """Return whether verify finds something, and its first line."""
    from tokmill.api.jobs import verify_dataset
    from tokmill.errors import TokmillError

    try:
        problems = verify_dataset(directory, str(SAMPLES / "tokenizer")).problems
    except TokmillError as error:
        return True, str(error)
    return bool(problems), problems[0] if problems else ""


def make_desks(directory: Path) -> list[Desk]:
    """Make the datasets, and one of other records beside each."""
    import tokmill

    desks = []
    for i, (recipe, source, settings) in enumerate(SETTINGS.values()):
        original, other = directory / f"original-{i}", directory / f"other-{i}"
        lines = (SAMPLES / source).read_bytes().splitlines(keepends=True)
        for out, its_lines in ((original, lines), (other, lines[1:])):
            path = out.with_suffix(".jsonl")
            path.write_bytes(b"".join(its_lines))
            common = {"engine": "reference", "workers": 1, "threads": 1, "progress": False}
            given = {"tokenizer": SAMPLES / "tokenizer", "output": out, **common, **settings}
            getattr(tokmill, recipe)(path, **given)
        desks.append(Desk(original, directory / f"work-{i}", other))
    return desks


def check_whole(desks: list[Desk]) -> None:
    """Raise RuntimeError if a dataset is damaged before a round, or not repaired behind one."""
    for desk in desks:
        found, line = is_found(desk.work)
        if found:
            raise RuntimeError(f"{desk.work}: {line}")


def main() -> None:
    """Damage, verify, repair; exit with 1 if something was missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    missed: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        desks = make_desks(Path(directory))
        check_whole(desks)
        for number in range(options.count):
            chance = random.Random(f"{options.seed}-{number}")
            desk, name = chance.choice(desks), list(DAMAGES)[number % len(DAMAGES)]
            touched = DAMAGES[name](desk, chance)
            if not is_found(desk.work)[0]:
                missed.append(f"round {number}: {name} of {', '.join(touched)}")
                print(f"missed: {missed[-1]}", file=sys.stderr, flush=True)
            desk.repair(*touched)
        check_whole(desks)
    print(f"{options.count:,} damages in {time.monotonic() - began:.0f} s, {len(missed)} missed")
    print(json.dumps({"tried": options.count, "missed": missed}))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
