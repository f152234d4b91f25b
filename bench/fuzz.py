"""Fuzz everything that reads bytes from outside: whatever they are, tokmill answers in one line.

    python -m bench.fuzz idx --seconds 300     mutated seeds of one target
    python -m bench.fuzz all --seconds 60      one after the other, with a table at the end

A target gets bytes and reads them as tokmill would read a file. A `TokmillError` is an answer.
Another exception, more than 20 s, or more than 2 GiB of memory is a crash, and its bytes are kept.
"""

from __future__ import annotations

import argparse
import gzip
import io
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import pyarrow as pa
from pyarrow import ipc, parquet

from bench.corruptions import OF_BYTES

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SAMPLES = Path(__file__).parents[1] / "data_samples"
_LONGEST_S, _MOST_KB = 20, 2 << 20


@cache
def desk() -> Path:
    """Return a directory of this process for the files of its inputs."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None
    return Path(tempfile.mkdtemp(dir=place))


@cache
def dataset(recipe: str) -> Path:
    """Return a small finished dataset; the target replaces one of its files."""
    import tokmill

    given = {"engine": "reference", "workers": 1, "threads": 1, "progress": False}
    out, source = desk() / recipe, "records.jsonl"
    if recipe == "sft":
        source, given["packing"], given["max_tokens"] = "sft/chats.jsonl", 2000, 2000
    given["max_reject_fraction"] = 1.0
    getattr(tokmill, recipe)(SAMPLES / source, tokenizer=SAMPLES / "tokenizer", output=out, **given)
    return out


def _replace(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def records(data: bytes, suffix: str) -> None:
    """Read records of a file: find its format, its first records, and all of its blocks."""
    from tokmill.settings.schema import InputSettings
    from tokmill.sources.file_kinds import check_encoding, check_kind
    from tokmill.sources.files import cut, discover
    from tokmill.sources.first_records import first_of_file
    from tokmill.sources.formats import open_slice
    from tokmill.sources.json_formats import parse_blocks

    path = desk() / f"in{suffix}"
    _replace(path, data)
    settings = InputSettings(paths=(str(path),), max_record_bytes=2000)
    files = discover(settings).files
    check_encoding(files)
    for file in files:
        check_kind(file, settings)
        first_of_file(file, settings, 100, 1 << 20, whole=False)
    section = pa.struct([("title", pa.string()), ("content", pa.string())])
    schema = pa.schema([("title", pa.string()), ("sections", pa.list_(section))])
    for file in files:
        for piece in cut(file, 1000):
            with open_slice(piece, settings, schema, 500) as reader:
                for block in reader.blocks():
                    parse_blocks([block])


def index(data: bytes) -> None:
    """Read the document index of a shard."""
    from tokmill.dataset.sidecars import read_index

    path = desk() / "shard.idx"
    _replace(path, data)
    read_index(path)


def manifest(data: bytes) -> None:
    """Open and verify a dataset with this manifest."""
    import tokmill
    from tokmill.api.jobs import verify_dataset

    out = dataset("pretrain")
    _replace(out / "manifest.json", data)
    with tokmill.open(out) as found:
        if len(found):
            found[0]
    verify_dataset(out)


def plan(data: bytes) -> None:
    """Read what a run left, before it continues: its plan and a record."""
    from tokmill.dataset.part_record import parse_record
    from tokmill.dataset.plan_file import OwnedNames, parse_plan
    from tokmill.errors import TokmillError
    from tokmill.place import open_place
    from tokmill.run.begin import read_planned

    path = desk() / "plan.json"
    _replace(path, data)
    readers: tuple[Callable[[], object], ...] = (
        lambda: parse_plan(data, "plan"),
        lambda: OwnedNames.of_plan(data, "plan"),
        lambda: parse_record(data, "record", 0, 1 << 20),
        lambda: read_planned(open_place(str(path.parent))),
    )
    for read in readers:
        with suppress(TokmillError):
            read()


def settings(data: bytes) -> None:
    """Read a file of settings."""
    from tokmill.settings.load import file_values

    path = desk() / "settings.toml"
    _replace(path, data)
    file_values(path)


def template(data: bytes) -> None:
    """Render a chat by a Jinja template."""
    from tokmill.chat.conversation import ChatError, Conversation
    from tokmill.chat.jinja.span_writer import check_written
    from tokmill.chat.jinja.template import JinjaTemplate
    from tokmill.chat.segments import Sample
    from tokmill.settings.sft import SftSettings

    control = {"<bos>": 0, "<eos>": 1, "<|im_start|>": 2, "<|im_end|>": 3}
    made = JinjaTemplate(
        data.decode(errors="replace"),
        control=control,
        variables={"eos_token": "<eos>"},
        settings=SftSettings(),
        where="fuzz.jinja",
        parse=False,
    )
    check_written(made.text_of, "fuzz.jinja")
    turns = [{"role": role, "content": "hello"} for role in ("system", "user", "assistant")]
    try:
        made.render(Conversation(turns, [None] * 3), Sample(control))
    except ChatError:  # the record becomes a reject
        return


def tokenizer(data: bytes) -> None:
    """Load a tokenizer.json."""
    from tokmill.settings.schema import TokenizerSettings
    from tokmill.tokenizer.tokenizer import load_tokenizer

    path = desk() / "tokenizer.json"
    _replace(path, data)
    load_tokenizer(TokenizerSettings(path=str(path), eos_token="<eos>"))


_SUFFIXES = (
    ".jsonl", ".json", ".csv", ".txt", ".parquet", ".arrow", ".jsonl.gz", ".jsonl.zst",
)  # fmt: skip

TARGETS: dict[str, Callable[[bytes], None]] = {
    **{f"records{suffix}": partial(records, suffix=suffix) for suffix in _SUFFIXES},
    "idx": index,
    "manifest": manifest,
    "plan": plan,
    "settings": settings,
    "template": template,
    "tokenizer": tokenizer,
}


def one_input(target: str, data: bytes) -> None:
    """Give bytes to a target; an exception that is no answer comes out."""
    from tokmill.errors import TokmillError

    try:
        TARGETS[target](data)
    except TokmillError:
        return


@cache
def seeds(target: str) -> list[bytes]:
    """Return sound inputs of a target, at most some kB each: the same ones at each call."""
    lines = b"".join((SAMPLES / "records.jsonl").read_bytes().splitlines(keepends=True)[:3])
    if target.startswith("records"):
        return {
            ".jsonl": [lines],
            ".json": [b"[" + lines.replace(b"\n", b",\n").rstrip(b",\n") + b"]", b'{"a": [1, 2]}'],
            ".csv": [(SAMPLES / "records.csv").read_bytes()[:2000], b'a,b\n"x\ny",2\n'],
            ".txt": [b"hello\n\nworld\n", "猫\n".encode()],
            ".parquet": [_table("parquet")],
            ".arrow": [_table("arrow")],
            ".jsonl.gz": [gzip.compress(lines)],
            ".jsonl.zst": [zstd.compress(lines)],
        }[target.removeprefix("records")]
    if target == "idx":
        return [next(dataset("pretrain").glob("*.idx")).read_bytes()]
    if target == "manifest":
        return [(dataset("pretrain") / "manifest.json").read_bytes()]
    if target == "plan":
        out = dataset("pretrain")
        return [(out / "plan.json").read_bytes(), next((out / "parts").iterdir()).read_bytes()]
    if target == "settings":
        configs = (SAMPLES.parent / "configs").glob("*.toml")
        return [path.read_bytes() for path in configs]
    if target == "template":
        turns = b"{% for m in messages %}{{ m.role + m['content'] | trim }}{% endfor %}"
        return [
            turns.replace(b"{{", b"{% generation %}{{").replace(b"}}", b"}}{% endgeneration %}"),
            b"{% macro f(x) %}{{ x * 2 }}{% endmacro %}{{ f('a') }}" + turns,
            b"{% set ns = namespace(a=1) %}{% for i in range(9) %}{% set ns.a = ns.a * 9 %}"
            b"{{ '%s' | format(ns.a) }}{% endfor %}{{ ''.join(['a'] * 9).replace('a', 'b') }}"
            + turns,
        ]
    return [(SAMPLES / "tokenizer" / "tokenizer.json").read_bytes()]


def _table(kind: str) -> bytes:
    rows = [{"title": "a", "sections": [{"title": "b", "content": "猫"}]}] * 3
    table, sink = pa.Table.from_pylist(rows), io.BytesIO()
    if kind == "parquet":
        parquet.write_table(table, sink, row_group_size=2)
    else:
        with ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def mutations(seed: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    """Yield changed copies of a seed: as `verify` must find them, and with odd values inside."""
    odd = [b"\0", b"\xff", b"\n", b'"', b"{", b"[", b"]" * 99, b"-1", b"9" * 400, b"\\ud800"]
    odd += [b"NaN", b"null", b"1e999", b"[" * 2000, "\u202e".encode(), b"\xed\xa0\x80", b"../x"]
    for _ in range(count):
        data = seed
        for _ in range(chance.randint(1, 4)):
            change = chance.choice((None, None, *OF_BYTES))
            if change and data:
                data = change(data, chance)
            else:
                at = chance.randrange(len(data) + 1)
                data = data[:at] + chance.choice(odd) + data[at:]
        yield data


def fuzz(target: str, seconds: float, chance: random.Random) -> tuple[int, str]:
    """Try mutated seeds for some time; return their number, and what the first crash was."""
    ended, n = time.monotonic() + seconds, 0
    while time.monotonic() < ended:
        for data in mutations(chance.choice(seeds(target)), chance, 20):
            began, n = time.monotonic(), n + 1
            signal.alarm(2 * _LONGEST_S)  # whatever hangs ends here
            try:
                one_input(target, data)
            except KeyboardInterrupt:
                raise
            except BaseException:  # panics of native code too
                return n, _kept(target, data, traceback.format_exc())
            finally:
                signal.alarm(0)
            if time.monotonic() - began > _LONGEST_S:
                return n, _kept(target, data, f"more than {_LONGEST_S} s")
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _MOST_KB:
                return n, _kept(target, data, f"more than {_MOST_KB >> 10:,} MiB")
    return n, ""


def _kept(target: str, data: bytes, what: str) -> str:
    path = Path(tempfile.mkdtemp()) / target
    path.write_bytes(data)
    return f"{what}\nthe bytes: {path}"


def main() -> None:
    """Fuzz one target, or all in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    n_crashes = 0
    for target in TARGETS if options.target == "all" else [options.target]:
        n, crash = fuzz(target, options.seconds, random.Random(f"{options.seed}-{target}"))
        n_crashes += bool(crash)
        print(f"{target:20} {n:>10,} inputs  {crash or 'ok'}", flush=True)
    sys.exit(1 if n_crashes else 0)


if __name__ == "__main__":
    main()
