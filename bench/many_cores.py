"""What bounds one process on many cores, and the proof that calls in flight follow threads.

    python -m bench.many_cores costs --input F.jsonl --tokenizer T --directory DIR
    python -m bench.many_cores proof --input F.jsonl --tokenizer T --directory DIR

`costs` measures with a null engine, which releases the GIL and returns at once with as many ids as
a real one: processor time outside the engine, GIL-held time, and the reader of each container. Give
it two idle processors. `proof` runs the command with an engine that makes each call k times as long
by sleeping, so that all other work fits in `--cores`; see `many_cores_proof`.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq

from bench.gil import GilClock
from bench.many_cores_proof import proof
from bench.scaling import print_table
from tokmill.engines.choice import EngineChoice
from tokmill.engines.engine import engine_version, load_engine
from tokmill.offsets import byte_offsets
from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.recipes.spec import Increments, RunSpec
from tokmill.run.part import run_part
from tokmill.run.prepare import Prepared, prepare
from tokmill.settings.schema import Config
from tokmill.sources.files import discover
from tokmill.sources.formats import open_slice
from tokmill.sources.slices import Slice
from tokmill.timing import StageTimer
from tokmill.values import TokenBatch

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Row = dict[str, Any]

BYTES_PER_TOKEN = 4
MOST_TOKENS = 1 << 26
ROUNDS = 5
ENGINE_TEXT_BYTES = 64 << 20


class NullEngine:
    """Releases the GIL and returns at once: an id for every four bytes of text."""

    name = "null"
    renewable = False
    concurrent = True

    def __init__(self) -> None:
        self._ids = np.random.default_rng(0).integers(0, 50_000, MOST_TOKENS).astype(np.uint32)

    def encode(self, text: pa.LargeStringArray, timer: StageTimer) -> TokenBatch:
        """Return ids that are no text's."""
        time.sleep(0)
        offsets = (byte_offsets(text) - byte_offsets(text)[0]) // BYTES_PER_TOKEN
        timer.end("encode")
        return TokenBatch(self._ids[: offsets[-1]], offsets)


def costs(args: argparse.Namespace) -> list[Row]:
    """Measure a run without its engine, the engine's hold on the GIL, and readers."""
    spec, prepared = _planned(args, args.directory)
    schema = next(iter(prepared.renderers().values()))[1].schema
    readers = [
        {
            "what": f"reader, {name}",
            "ms/MB": _reader(path, schema),
        }
        for name, path in _containers(args.input, args.directory)
    ]
    return [*_around(args), *_engine(args.engine, spec, args.input), *readers]


def _around(args: argparse.Namespace) -> list[Row]:
    """Return the least of some rounds over the input, after one that warms up."""
    with tempfile.TemporaryDirectory(prefix="many-cores-", dir=args.directory) as name:
        spec, prepared = _planned(args, Path(name))
        recipe = PretrainRecipe(spec)
        recipe.engine, recipe.spot = NullEngine(), None  # type: ignore[assignment]
        found = [_one_round(spec, prepared, recipe, Path(name)) for _ in range(ROUNDS + 1)][1:]
    return [{"what": key, "ms/MB": min(one[key] for one in found)} for key in found[0]]


def _planned(args: argparse.Namespace, out: Path) -> tuple[RunSpec, Prepared]:
    config = Config()
    config = replace(
        config,
        input=replace(config.input, paths=(str(args.input),)),
        output=replace(config.output, dir=str(out)),
        tokenizer=replace(
            config.tokenizer, path=str(args.tokenizer), eos_token=args.eos_token or "auto"
        ),
    )
    prepared = prepare(config)
    engine = EngineChoice(args.engine, engine_version(args.engine, prepared.tokenizer), "asked for")
    return prepared.spec(engine, 1), prepared


def _one_round(
    spec: RunSpec, prepared: Prepared, recipe: PretrainRecipe, out: Path
) -> dict[str, float]:
    shutil.rmtree(out)
    for name in ("parts", "rejects"):
        (out / name).mkdir(parents=True)
    stages: Counter[str] = Counter()
    text_bytes = 0

    def report(progress: Increments) -> None:
        nonlocal text_bytes
        text_bytes += progress.text_bytes
        stages.update({name: found.wall_s for name, found in progress.stage_s.items()})

    with GilClock() as gil:
        cpu_s, calling_s = time.process_time(), time.thread_time()
        for part in prepared.parts:
            run_part(spec, part, lambda: recipe, report)
        cpu_s, calling_s = time.process_time() - cpu_s, time.thread_time() - calling_s
    found = {
        "outside the engine, all threads, processor": cpu_s,
        "GIL held": gil.held_s,
        "calling thread (reads, adds results), processor": calling_s,
        "writing thread: hash": stages["hash"],
        "writing thread: write": stages["write"],
        "parse": stages["parse"],
        "render": stages["render"],
        "narrow": stages["narrow"],
    }
    return {key: seconds / text_bytes * 1e9 for key, seconds in found.items()}


def _engine(name: str, spec: RunSpec, source: Path) -> list[Row]:
    """Return what a call of the engine alone takes, on one thread with warm caches."""
    engine = load_engine(name, spec.tokenizer, control_in_text="text", n_threads=2)
    column = _texts(source)
    engine.encode(column)
    with GilClock() as gil:
        start_s = time.process_time()
        engine.encode(column)
        cpu_s = time.process_time() - start_s
    n_bytes = int(byte_offsets(column)[-1])
    found = {"processor, caches warm": cpu_s, "GIL held": gil.held_s}
    return [{"what": f"{name}: {k}", "ms/MB": s / n_bytes * 1e9} for k, s in found.items()]


def _texts(path: Path) -> pa.LargeStringArray:
    with path.open("rb") as file:
        text = file.read(ENGINE_TEXT_BYTES).decode(errors="replace")
    return pa.array(text.split("\n"), pa.large_string())


def _containers(source: Path, directory: Path) -> list[tuple[str, Path]]:
    """Return the input in every container, made once."""
    makers: dict[str, Callable[[Path, Path], None]] = {
        "plain": lambda a, b: b.symlink_to(a.resolve()),
        "gz": lambda a, b: _packed(a, b, partial(gzip.open, compresslevel=6)),
        "zst": lambda a, b: _packed(a, b, zstd.open),
        "parquet": lambda a, b: pq.write_table(pyarrow.json.read_json(a), b, compression="zstd"),
    }
    found = []
    for name, make in makers.items():
        ending = {"plain": ".jsonl", "parquet": ".parquet"}.get(name, f".jsonl.{name}")
        path = directory / f"{source.stem}{ending}"
        if not path.exists():
            make(source, path)
        found.append((name, path))
    return found


def _packed(source: Path, target: Path, open_packed: Callable[..., Any]) -> None:
    with source.open("rb") as plain, open_packed(target, "wb") as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)


def _reader(path: Path, schema: pa.Schema) -> float:
    """Return the milliseconds that reading takes for each MB of records, decompressed."""
    config = Config()
    settings = replace(config.input, paths=(str(path),))
    (file,) = discover(settings).files
    taken = []
    for _ in range(ROUNDS):
        start_s = time.thread_time()
        whole = Slice(file, 0, -1, file.n_bytes)
        with open_slice(whole, settings, schema, config.run.batch_bytes) as reader:
            n_bytes = sum(block.n_bytes for block in reader.blocks())
        taken.append((time.thread_time() - start_s) / n_bytes * 1e9)
    return min(taken)


def parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    root = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    sections = root.add_subparsers(dest="section", required=True)
    for section in (costs, proof):
        one = sections.add_parser(section.__name__, help=section.__doc__)
        one.set_defaults(run=section)
        one.add_argument("--input", type=Path, required=True)
        one.add_argument("--tokenizer", type=Path, required=True)
        one.add_argument("--eos-token", default="")
        one.add_argument("--engine", default="gigatoken")
        one.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir()))
    proving = sections.choices["proof"]
    proving.add_argument("--bytes", default="3GB", help="of input: the file, again and again")
    proving.add_argument("--batch-bytes", default="1MiB", help="less than usual: more rounds")
    proving.add_argument("--cores", type=float, default=1.5, help="for everything but sleeping")
    proving.add_argument("--threads", type=int, default=64)
    proving.add_argument("--workers", type=int, nargs="+", default=[1, 8])
    return root


def main() -> None:
    """Run one section and print its table."""
    args = parser().parse_args()
    with suppress(KeyboardInterrupt):
        print_table(args.run(args))


if __name__ == "__main__":
    main()
