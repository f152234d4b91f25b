"""Give tokmill hostile datasets whose sums are right: whatever they say, the answer is one line.

    python -m bench.hostile --count 2000 [--seed 1]

Each case changes one file of a small dataset (its manifest, plan, the record of a part, an index of
packs or of a shard), writes the sums that fit, and gives it to commands and to the loader. They run
in a forked child, with limits on time and memory. A case fails by a traceback, an exit code that is
not documented for such files, characters that affect a terminal, a signal, a hang, or a lot of
memory. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MANIFEST, PLAN = "manifest.json", "plan.json"

LONGEST_S, MOST_BYTES = 30, 1 << 30
"""Limits of one command: seconds, and growth of the resident memory."""

EXIT_CODES = {0, 1, 2, 3, 4, 5, 6}
"""Memory that ran out (7) and a bug (70) are no answers to a damaged file."""

_TERMINAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

# The datasets


@dataclass(frozen=True)
class Original:
    """A dataset that is changed; `again`: the arguments of the command that continues it."""

    directory: Path
    again: tuple[str, ...]


def _tokmill(*arguments: object) -> None:
    """Run a command in this process; raises RuntimeError if it fails."""
    code, text = answer_of(tuple(map(str, arguments)))
    if code:
        raise RuntimeError(f"{arguments}: exit code {code}: {text}")


def make_tokenizer(folder: Path) -> Path:
    """Make a tokenizer of 290 ids: a large one would take most of the time of a case."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as Decoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel
    from tokenizers.trainers import BpeTrainer

    library = Tokenizer(BPE())
    library.pre_tokenizer = ByteLevel(add_prefix_space=False)
    library.decoder = Decoder()
    trainer = BpeTrainer(
        vocab_size=290,
        special_tokens=["<eos>", "<bos>"],
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(["hello world hello there other"], trainer)
    directory = folder / "tokenizer"
    directory.mkdir()
    library.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    return directory


def make_originals(folder: Path) -> dict[str, Original]:
    """Make one small dataset of each kind."""
    tokenizer = str(make_tokenizer(folder))
    texts = folder / "texts.jsonl"
    rows: list[dict[str, Any]] = [
        {"text": f"hello {i} " * (i % 7 + 1), "url": f"u/{i % 5}"} for i in range(60)
    ]
    rows += [{"text": "hello 1 hello 1 ", "url": None}, {"text": ""}]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = folder / "more.jsonl"
    more.write_text("".join(json.dumps({"text": f"other {i}"}) + "\n" for i in range(30)))
    chats = folder / "chats.jsonl"
    turns: list[dict[str, Any]] = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "yes yes"},
    ]
    weighted: list[dict[str, Any]] = [turns[0], {**turns[1], "weight": 0.5}]
    chats.write_text(
        "".join(json.dumps({"messages": weighted if i % 3 else turns}) + "\n" for i in range(40))
    )
    common: tuple[str, ...] = (
        "-t",
        tokenizer,
        "--engine",
        "reference",
        "--threads",
        "1",
        "--workers",
        "1",
    )
    common += ("--max-reject-fraction", "1", "--val-fraction", "0.2", "-q")
    text_run: tuple[str, ...] = (
        "pretrain",
        str(texts),
        str(more),
        *common,
        "--keep",
        "url",
        "--part-bytes",
        "1500",
    )
    text_run += ("--shard-tokens", "200")
    chat_run: tuple[str, ...] = (
        "sft",
        str(chats),
        *common,
        "--template",
        "plain",
        "--weights",
        "file",
    )
    chat_run += ("--max-tokens", "64", "--packing", "64", "--packed-rows", "--part-bytes", "2kB")
    runs: dict[str, tuple[str, ...]] = {
        "pretrain": text_run,
        "sft": chat_run,
        "plain": ("pretrain", str(more), *common),
    }
    made: dict[str, Original] = {}
    for name, arguments in runs.items():
        directory = folder / name
        made[name] = Original(directory, (*arguments, "-o", "WORK"))
        _tokmill(*arguments, "-o", directory)
    for last in ("fragment", "drop"):
        made[f"packed {last}"] = Original(folder / f"packed-{last}", (*text_run, "-o", "WORK"))
        shutil.copytree(folder / "pretrain", folder / f"packed-{last}")
        _tokmill("pack", folder / f"packed-{last}", "--length", 16, "--last", last)
    inputs = (str(folder / "pretrain"), f"{folder / 'plain'}=2x")
    mixes = {
        "mix": (*inputs, "--shuffle", "1", "--dedup", "mark", "--shard-tokens", "300"),
        "linked mix": (str(folder / "pretrain"), str(folder / "plain")),
        "mix of chats": (f"{folder / 'sft'}=2x", "--shuffle", "1"),
    }
    for name, arguments in mixes.items():
        directory = folder / name.replace(" ", "-")
        made[name] = Original(directory, ("mix", *arguments, "-q", "-o", "WORK"))
        _tokmill("mix", *arguments, "-q", "-o", directory)
    exported, imported = folder / "exported", folder / "imported"
    _tokmill("export", folder / "plain", "--to", "megatron", "--output", exported)
    prefix = str(next(exported.rglob("*.bin")).with_suffix(""))
    again = ("import", prefix, "--from", "megatron", "-t", tokenizer)
    made["import"] = Original(imported, (*again, "-o", "WORK"))
    _tokmill(*again, "-o", imported)
    for name in ("pretrain", "sft"):
        directory = folder / f"stopped-{name}"
        shutil.copytree(made[name].directory, directory)
        (directory / MANIFEST).unlink()
        max((directory / "parts").iterdir()).unlink()
        made[f"stopped {name}"] = Original(directory, made[name].again)
    return made


# The changes


def deep(n: int) -> Any:
    """Return a list in a list, n times."""
    value: Any = []
    for _ in range(n):
        value = [value]
    return value


ODD: dict[str, Any] = {
    "null": None, "true": True, "zero": 0, "one": 1, "minus one": -1, "negative": -(1 << 40),
    "huge": 10**15, "above int64": 1 << 63, "above double": 10**400, "fraction": 0.5,
    "large float": 1e308, "minus zero": -0.0, "empty text": "", "blank": " ", "text": "x",
    "outside": "../x", "absolute": "/etc/passwd", "device": "/dev/zero", "inner": "a/../b",
    "zero byte": "a\0b", "escape": "\x1b]0;x\x07\x1b[31m", "line ends": "a\nb\r",
    "surrogate": "\ud800", "direction": "\u202egnp.exe", "train": "train", "val": "val",
    "shard": "train-0000000-0000", "other shard": "val-0000009-0000", "manifest": MANIFEST,
    "store": "s3://bucket/x", "code": "evil:render", "percent": "%s{0}{{x}}", "list": [],
    "list of lists": [[]], "list of null": [None], "list of one": [0], "list of texts": ["url"],
    "object": {}, "object of an empty key": {"": {}}, "list of objects": [{}], "id": {"id": 0},
    "long": "a" * 9999, "deep": deep(300), "uint32": "uint32", "sft": "sft", "auto": "auto",
}  # fmt: skip


def delete(holder: Any, key: Any, _chance: random.Random) -> None:
    """Leave a value out."""
    del holder[key]


def repeat(holder: Any, key: Any, _chance: random.Random) -> None:
    """Put the entry of a list there twice, or a value under another key too."""
    if isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    else:
        holder[f"{key}2"] = copy.deepcopy(holder[key])


def exchange(holder: Any, key: Any, chance: random.Random) -> None:
    """Exchange two values of one list or object."""
    other = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    holder[key], holder[other] = holder[other], holder[key]


def nudge(holder: Any, key: Any, chance: random.Random) -> None:
    """Change a number a little, or a letter of a text; empty what holds others."""
    value = holder[key]
    if isinstance(value, bool | None):
        holder[key] = not value
    elif isinstance(value, int | float):
        holder[key] = value + chance.choice([-1, 1, 7])
    elif isinstance(value, str):
        holder[key] = value[:-1] + chance.choice("09azZ-.") if value else "a"
    else:
        holder[key] = type(value)()


Change = Callable[[Any, Any, random.Random], None]


def put(value: Any) -> Change:
    """Return what puts a value in the place of another."""

    def change(holder: Any, key: Any, _chance: random.Random) -> None:
        holder[key] = copy.deepcopy(value)

    return change


CHANGES: dict[str, Change] = {
    **{name: put(value) for name, value in ODD.items()},
    "deleted": delete, "repeated": repeat, "exchanged": exchange, "nudged": nudge,
}  # fmt: skip


def places(value: Any, where: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Yield each container and key below a value, and its place without numbers of lists."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in list(keys):
        name = f"{where}.{key}" if isinstance(value, dict) else f"{where}[]"
        yield value, key, name
        if isinstance(value[key], dict | list):
            yield from places(value[key], name)


NUMBERS = [-(1 << 63), -(1 << 31), -1, 0, 1, 2, 5, 1 << 20, (1 << 31) - 1, (1 << 62), (1 << 63) - 1]


def changed_numbers(data: bytes, chance: random.Random, dtype: str, start: int) -> bytes:
    """Return the bytes of an index with other numbers, or cut, longer, or with a bit flipped."""
    if chance.random() < 0.2:
        return data[: chance.randrange(len(data))]
    if chance.random() < 0.1:
        return data + bytes(chance.choice([1, 8, 16]))
    if chance.random() < 0.2:
        at = chance.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    size = np.dtype(dtype).itemsize
    body = np.frombuffer(data[start:][: (len(data) - start) // size * size], dtype).copy()
    limits = np.iinfo(body.dtype)
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(body))
        near = int(body[at]) + chance.choice([-1, 1])
        value = chance.choice([near, *NUMBERS])
        body[at] = min(max(value, limits.min), limits.max)
    return data[:start] + body.tobytes() + data[start + len(body) * size :]


LIES = {"few": 1, "more": 1 << 20, "many": 1 << 40, "all": 1 << 60}
"""Counts of a shard that every other value of the manifest agrees with."""


def tell_consistently(manifest: dict[str, Any], key: str, n: int) -> None:
    """Change the documents or tokens of the first shard, and all that must agree with them."""
    from tokmill.dataset.manifest import Manifest

    shard = manifest["shards"][0]
    added = n - shard[key]
    shard[key] = n
    for counts in (manifest["totals"], manifest["sources"][0]):
        counts[key] += added
    for pack in manifest.get("packs", {}).values():
        pack["samples"] += added if key == "documents" else 0
    told = Manifest.of(manifest, "")
    sizes = dict((*told.files_of_shards(told.shards), *told.files_of_packs()))
    for entry in manifest["files"]:
        entry["bytes"] = sizes.get(entry["name"]) or entry["bytes"]


@dataclass(frozen=True)
class Case:
    """One change: of a file of an original, at a place without numbers, in a way."""

    original: str
    file: str
    place: str
    change: str

    def __str__(self) -> str:
        return f"{self.original}: {self.file}{self.place}: {self.change}"


def cases_of(name: str, original: Original) -> Iterator[Case]:
    """Yield every case of an original: each kind of place of each file with each change."""
    files = [
        path.relative_to(original.directory).as_posix()
        for path in sorted(original.directory.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    ]
    records = [file for file in files if file.startswith("parts/")]
    for file in (*(f for f in files if f in (MANIFEST, PLAN)), *records[:1]):
        data = json.loads((original.directory / file).read_bytes())
        found = dict.fromkeys(place for _, _, place in places(data))
        found.pop(".sha256" if file == MANIFEST else ".fingerprint" if file == PLAN else "", None)
        yield from (Case(name, file, place, change) for place in found for change in CHANGES)
    ends = ("-rows.bin", "-samples.bin", "-pieces.bin", ".idx", ".origin", ".meta")
    binary = [file for file in files if file.endswith(ends) or file.startswith("duplicates")]
    yield from (Case(name, file, "", f"numbers {i}") for file in binary for i in range(12))
    if MANIFEST in files:
        for key in ("documents", "tokens"):
            yield from (Case(name, MANIFEST, key, f"consistent {lie}") for lie in LIES)


def apply(case: Case, original: Original, work: Path, chance: random.Random) -> None:
    """Write a changed copy of an original; its sums are right."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(original.directory, work, copy_function=os.link)
    content = (work / case.file).read_bytes()
    if case.change.startswith("numbers"):
        is_long = case.file.endswith(("-rows.bin", "-samples.bin")) or "duplicates" in case.file
        dtype = "<i8" if is_long else "u1" if case.file.endswith((".origin", ".meta")) else "<i4"
        start = 34 if case.file.endswith(".idx") else 0
        content = changed_numbers(content, chance, dtype, start)
    elif case.change.startswith("consistent"):
        data = json.loads(content)
        tell_consistently(data, case.place, LIES[case.change.removeprefix("consistent ")])
        content = with_sum(data, case.file)
    else:
        data = json.loads(content)
        here = [(holder, key) for holder, key, place in places(data) if place == case.place]
        holder, key = chance.choice(here)
        CHANGES[case.change](holder, key, chance)
        content = with_sum(data, case.file)
    replace(work / case.file, content)
    if case.file != MANIFEST and (work / MANIFEST).exists():
        manifest = json.loads((work / MANIFEST).read_bytes())
        for entry in manifest["files"]:
            if entry["name"] == case.file:
                entry |= sums_of(content, entry)
        replace(work / MANIFEST, with_sum(manifest, MANIFEST))


def with_sum(data: Any, file: str) -> bytes:
    """Return the bytes of a JSON file of a dataset, with its own sum made right."""
    from tokmill.dataset.checksum import canonical_json, json_chunks, sha256_without

    key = {MANIFEST: "sha256", PLAN: "fingerprint"}.get(file)
    if key is None:
        return canonical_json(data)
    data[key] = sha256_without(data, key)
    return b"".join(json_chunks(data))


def sums_of(content: bytes, entry: dict[str, Any]) -> dict[str, Any]:
    """Return the size and the sum of a file, under the keys of its entry."""
    from tokmill.dataset.checksum import Digest
    from tokmill.settings.schema import CHECKSUMS

    algorithm = next(name for name in CHECKSUMS if name in entry)
    digest = Digest(algorithm)
    digest.update(content)
    return {"bytes": len(content), algorithm: digest.checksum()}


def replace(path: Path, content: bytes) -> None:
    """Write a file in place of a link to that of the original."""
    path.unlink()
    path.write_bytes(content)


# The commands


def answer_of(arguments: tuple[str, ...]) -> tuple[int, str]:
    """Run the command line in this process; return its exit code and all that it printed."""
    from tokmill.cli.main import main

    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    before, sys.argv = sys.argv, ["tokmill", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code: Any = 0
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = before
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (out, err):
        stream.flush()
    text = [stream.buffer.getvalue().decode(errors="replace") for stream in (out, err)]
    return int(code or 0), "\n".join(text)


def read_all(work: Path) -> None:
    """Read all that an open dataset offers."""
    import tokmill

    with tokmill.open(work) as dataset:
        _ = repr(dataset), dataset.shards, dataset.splits, dataset.n_tokens
        readers: list[Callable[[], object]] = [
            lambda: [list(ids[:3]) for ids in dataset],
            lambda: [dataset.text(i) for i in range(min(3, len(dataset)))],
            lambda: [dataset.origin(i) for i in range(0, len(dataset), 7)],
            lambda: [dataset.meta(i) for i in range(0, len(dataset), 7)],
            lambda: [dataset.mask(i) for i in range(0, len(dataset), 7)],
            lambda: [dataset.weight(i) for i in range(0, len(dataset), 7)],
            lambda: [p.row(i) for p in dataset.packs.values() for i in range(p.n_rows)],
            lambda: [p.row_pieces(i) for p in dataset.packs.values() for i in range(p.n_rows)],
            lambda: dataset.split("val")[0] if "val" in dataset.splits else None,
            lambda: dataset.stats().lengths.percentile(50),
            lambda: dataset.bill("llama-3.2-1b"),
        ]
        for read in readers:
            with contextlib.suppress(tokmill.TokmillError):
                read()


def load_all(work: Path) -> None:
    """Read windows, documents and packs by the loader, and continue from a state."""
    import tokmill
    from tokmill import loader

    makers: list[Callable[[], Any]] = [
        lambda: loader.windows(work, 16, shift=True, document_ids=True, cu_seqlens=True),
        lambda: loader.documents(work, fim_rate=0.5, fim_tokens=[5, 6, 7]),
        lambda: loader.documents(work, "val"),
        lambda: loader.packs(work, shift=True),
        lambda: loader.packs(work, "val", shift=False),
    ]
    for make in makers:
        with contextlib.suppress(tokmill.TokmillError):
            source = make()
            _ = [source[i] for i in range(len(source))]
            if hasattr(source, "batch"):
                batches = loader.Loader(source, batch=2, epochs=1)
                next(iter(batches), None)
                loader.Loader(source, batch=1).load_state_dict(batches.state_dict())


TRAINERS = (
    "megatron", "datatrove", "nanotron", "olmo-core", "nanogpt", "datasets", "llm.c",
    "modded-nanogpt", "trl", "axolotl", "litdata", "litgpt", "megatron-bridge", "torchtitan",
    "llamafactory", "ms-swift", "skyrl", "unsloth", "automodel", "maxtext",
)  # fmt: skip

READING: tuple[tuple[str, ...], ...] = (
    ("verify", "WORK"), ("inspect", "WORK"), ("inspect", "WORK", "--row", "0"),
    ("inspect", "WORK", "--document", "3"), ("inspect", "WORK", "--noticed", "e"),
    ("inspect", "WORK", "--json", "--split", "val", "--ids"), ("stats", "WORK"),
    ("stats", "WORK", "--json"), ("report", "WORK", "--html", "NEW/page.html"),
    ("report", "WORK", "--json", "--model", "llama-3.2-1b"), ("status", "WORK"),
)  # fmt: skip
WRITING: tuple[tuple[str, ...], ...] = (
    *(("export", "WORK", "--to", trainer, "--output", "NEW/out") for trainer in TRAINERS),
    ("mix", "WORK", "-o", "NEW/out", "--workers", "1"),
    ("mix", "WORK", "-o", "NEW/out", "--shuffle", "1", "--workers", "1"),
    ("mix", "WORK=2x", "-o", "NEW/out", "--dedup", "mark", "--workers", "1"),
    ("mix", "WORK", "PLAIN", "-o", "NEW/out"),
    ("mix", "WORK", "PLAIN", "-o", "NEW/out", "--min-tokens", "3", "--workers", "1"),
    ("pack", "WORK", "--length", "16"), ("pack", "WORK", "--length", "9", "--last", "drop"),
    ("finish", "WORK"), ("run-part", "WORK", "--index", "0", "--of", "1"), ("again",),
    ("again", "--overwrite"),
)  # fmt: skip


def problem_with(arguments: tuple[str, ...]) -> str:
    """Run a command; return what is wrong with its answer, or ''."""
    code, text = answer_of(arguments)
    if code not in EXIT_CODES or "Traceback" in text:
        return f"exit code {code}: {text[-3000:]}"
    if odd := _TERMINAL.search(text):
        at = odd.start()
        return f"prints {odd[0]!r}: {text[max(0, at - 80) : at + 20]!r}"
    if code and text.count("\nerror: ") + text.startswith("error: ") > 1:
        return f"more than one error: {text[-1000:]}"
    return ""


class Attempts:
    """Runs cases in this process; each command is announced before it starts."""

    def __init__(self, originals: dict[str, Original], folder: Path, most: int) -> None:
        self._originals, self._most = originals, most
        self.work, self._new = folder / "work", folder / "new"

    def failures(self, case: Case, seed: str, announce: Callable[[str], None]) -> Iterator[str]:
        """Yield a text for each command that answers a case wrongly."""
        from tokmill.errors import TokmillError

        chance, original = random.Random(f"{seed} {case}"), self._originals[case.original]
        reading = chance.sample(READING, self._most)
        for command in [*reading, *chance.sample(WRITING, self._most)]:
            shutil.rmtree(self._new, ignore_errors=True)
            self._new.mkdir(parents=True)
            if command is reading[0] or command in WRITING:
                apply(case, original, self.work, random.Random(f"{seed} {case}"))
            arguments = self._named(command, original)
            announce(" ".join(command))
            if problem := problem_with(arguments):
                yield f"{' '.join(command)}: {problem}"
        apply(case, original, self.work, random.Random(f"{seed} {case}"))
        for name, read in (("tokmill.open", read_all), ("loader", load_all)):
            announce(name)
            try:
                read(self.work)
            except TokmillError:
                pass
            except BaseException:  # a panic of native code is no Exception
                yield f"{name}: {traceback.format_exc()[-3000:]}"

    def _named(self, command: tuple[str, ...], original: Original) -> tuple[str, ...]:
        """Return a command with the names of this process."""
        arguments = (*original.again, *command[1:]) if command[0] == "again" else command
        names = {"WORK": self.work, "NEW": self._new, "PLAIN": self._originals["plain"].directory}
        for name, path in names.items():
            arguments = tuple(word.replace(name, str(path)) for word in arguments)
        return arguments


# Children


def run_cases(
    cases: list[Case], originals: dict[str, Original], folder: Path, seed: str, most: int
) -> Iterator[tuple[Case, str]]:
    """Yield a case and what went wrong, for each failure; cases run in forked children."""
    position = 0
    while position < len(cases):
        read_end, write_end = os.pipe()
        child = os.fork()
        if not child:
            os.close(read_end)
            _work_through(cases[position:], originals, folder, seed, most, write_end)
        os.close(write_end)
        for case, text in _reports(cases[position:], read_end, child):
            position += 1
            if text:
                yield case, text
        os.close(read_end)


def _work_through(
    cases: list[Case], originals: dict[str, Original], folder: Path, seed: str, most: int, out: int
) -> None:
    """Work through cases in a child, and report each; never returns."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))

    def tell(**message: Any) -> None:
        os.write(out, json.dumps(message).encode() + b"\n")

    attempts = Attempts(originals, folder, most)
    for case in cases:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found = []
        try:
            for text in attempts.failures(case, seed, lambda name: tell(doing=name)):
                found.append(text)  # noqa: PERF402
        except BaseException:
            found.append(traceback.format_exc())
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before << 10
        if grown > MOST_BYTES:
            found.append(f"{grown >> 20} MiB of memory more")
        tell(done="\n".join(found))
    os._exit(0)


def _reports(cases: list[Case], read_end: int, child: int) -> Iterator[tuple[Case, str]]:
    """Yield what a child says of each case, and how it ended if that was not at its own wish."""
    waiting, number, doing, rest = iter(cases), 0, "", b""
    case = next(waiting)
    while True:
        ready, _, _ = select.select([read_end], [], [], LONGEST_S)
        data = os.read(read_end, 1 << 20) if ready else b""
        if not data:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if number < len(cases):
                how = f"ended with status {status}" if ready else f"more than {LONGEST_S} s"
                yield case, f"{doing}: {how}"
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "doing" in message:
                doing = message["doing"]
                continue
            number += 1
            yield case, message["done"]
            case = next(waiting, case)


def chosen_cases(originals: dict[str, Original], count: int, seed: str) -> list[Case]:
    """Return cases, evenly from the files of all originals; all of them if `count` is 0."""
    by_file: dict[tuple[str, str], list[Case]] = {}
    for name, original in originals.items():
        for case in cases_of(name, original):
            by_file.setdefault((case.original, case.file.partition("/")[0]), []).append(case)
    chance = random.Random(seed)
    for cases in by_file.values():
        chance.shuffle(cases)
    total = sum(map(len, by_file.values()))
    chosen: list[Case] = []
    while len(chosen) < (min(count, total) or total):
        chosen += [cases.pop() for cases in by_file.values() if cases]
    return chosen[:count] if count else chosen


def main() -> None:
    """Try cases; exit with 1 if a command answered one of them wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=2000, help="0: every case there is")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--commands", type=int, default=4, help="of each kind, for a case")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    options = parser.parse_args()
    began, failed = time.monotonic(), []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        originals = make_originals(folder)
        cases = chosen_cases(originals, 0 if options.only else options.count, options.seed)
        cases = [case for case in cases if options.only in str(case)][: options.count or None]
        for case, text in run_cases(cases, originals, folder, options.seed, options.commands):
            failed.append(str(case))
            print(f"failed: {case}\n{text}\n", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    print(f"{len(cases):,} cases in {seconds:.0f} s, {len(failed)} failed")
    print(json.dumps({"tried": len(cases), "failed": failed}))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
