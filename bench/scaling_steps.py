"""The steps around the encoding, over made-up datasets: what `scaling.py` times case by case."""

from __future__ import annotations

import gc
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tokmill.dataset.canonical import manifest_sha256, sha256_hex
from tokmill.dataset.checksum import Checksum, FileEntry
from tokmill.dataset.commit_record import Commit, PartRecord, read_committed
from tokmill.dataset.counts import Counts
from tokmill.dataset.layout import MANIFEST, PARTS, PLAN, part_name, shard_stem
from tokmill.dataset.reader import find_document, read_manifest
from tokmill.dataset.writer import ShardEntry
from tokmill.engines.choice import EngineChoice
from tokmill.errors import VerifyError
from tokmill.recipes.spec import Part, RunSpec
from tokmill.run.compare_plans import check_same
from tokmill.run.finish import Usage, committed, finish
from tokmill.run.plan import Plan, make_parts, read_plan, resolve, write_plan
from tokmill.run.prepare import Prepared, sample
from tokmill.run.readings import find_readings, inputs_of, resolve_render
from tokmill.settings.schema import BLAKE3, Config
from tokmill.sources.files import SourceFile, discover
from tokmill.tokenizer.tokenizer import Token, Tokenizer

Row = dict[str, Any]
Result = TypeVar("Result")

BYTES_PER_TOKEN = 2
INPUT_BYTES_PER_TOKEN = 4
TOKENS_PER_DOCUMENT = 700
USAGE = Usage(1.0, 1.0, 1, 0, 1, 1)


class Steps:
    """Times steps, and reads the peak of this process's memory inside each."""

    def __init__(self, **case: int) -> None:
        self._case = case
        self.rows: list[Row] = []

    def time(self, name: str, step: Callable[[], Result], size: Path | None = None) -> Result:
        """Run a step; `size`: the file that it wrote or read."""
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from here
        before = _status_mib("VmRSS")
        start = time.perf_counter()
        result = step()
        seconds = time.perf_counter() - start
        written = size.stat().st_size / 1e6 if size is not None and size.exists() else ""
        self.rows.append(
            {
                **self._case,
                "step": name,
                "seconds": seconds,
                "before MiB": before,
                "peak MiB": _status_mib("VmHWM"),
                "file MB": written,
            }
        )
        return result


def _status_mib(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) >> 10
    return 0


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """Return an empty directory that is gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="scaling-", dir=directory))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def planner_steps(n_files: int, directory: Path) -> list[Row]:
    """Drive the planner over so many real files of one record each."""
    steps = Steps(files=n_files)
    with scratch(directory) as place:
        many = place / "in"
        for i in range(n_files):
            folder = many / f"{i // 100_000:03d}" / f"{i // 1000 % 100:02d}"
            if i % 1000 == 0:
                folder.mkdir(parents=True)
            (folder / f"{i:08d}.jsonl").write_text(f'{{"text": "record {i}"}}\n')
        config = _config(place / "out", (str(many),))
        found = steps.time("discover", lambda: discover(config.input))
        inputs = inputs_of(config, None)
        readings = steps.time("probe", lambda: find_readings(inputs, resolve_render))
        parts = steps.time("make parts", lambda: make_parts(found.files, config.output.part_bytes))
        prepared = Prepared(config, found, TOKENIZER, tuple(readings), parts)
        steps.time("sample", lambda: sample(prepared, 4 << 20))
        _from_plan_to_manifest(steps, config, parts)
    return steps.rows


def manifest_steps(n_tokens: int, n_files: int, directory: Path) -> list[Row]:
    """Finish, restart, read and check a dataset of so many tokens over files only named."""
    steps = Steps(tokens=n_tokens, files=n_files)
    n_bytes = n_tokens * INPUT_BYTES_PER_TOKEN // n_files
    with scratch(directory) as place:
        config = _config(place / "out", ())
        files = _named_files(n_files, n_bytes)
        parts = steps.time("make parts", lambda: make_parts(files, config.output.part_bytes))
        sha256 = _from_plan_to_manifest(steps, config, parts)
        del parts
        _read(steps, Path(config.output.dir), sha256)
    return steps.rows


def _named_files(n_files: int, n_bytes: int) -> list[SourceFile]:
    names = (f"/corpus/crawl-{i // 1000:04d}/part-{i:08d}.jsonl" for i in range(n_files))
    return [SourceFile(name, "jsonl", "", n_bytes, 1_700_000_000 * 10**9, "") for name in names]


def _from_plan_to_manifest(steps: Steps, config: Config, parts: tuple[Part, ...]) -> str:
    """Write the plan, commit every part, look at all as a restart does, finish; give the sum."""
    out = Path(config.output.dir)
    (out / PARTS).mkdir(parents=True)
    plan = Plan(RunSpec(config, TOKENIZER, ENGINE, 1), parts)
    steps.time("write plan.json", lambda: write_plan(out, plan), out / PLAN)
    for part in parts:
        _commit(plan, part)
    found = steps.time("restart: read plan.json", lambda: read_plan(out))
    if found is None:
        raise AssertionError("there is a plan")
    steps.time("restart: compare plans", partial(check_same, found, plan, out))
    del found
    steps.time("restart: see what is done", lambda: _read_done(plan, out))
    manifest = steps.time(
        "write manifest.json", lambda: finish(plan, committed(plan), [1], USAGE), out / MANIFEST
    )
    return str(manifest["sha256"])


def _read(steps: Steps, out: Path, sha256: str) -> None:
    """Read a manifest as every reader does, check it as `verify` does, look up a document."""
    manifest = steps.time("read manifest.json", lambda: read_manifest(out), out / MANIFEST)
    if sha256 != steps.time("verify: its own sum", lambda: manifest_sha256(manifest)):
        raise AssertionError("the manifest is not what was written")
    last = manifest["totals"]["documents"] - 1
    steps.time("find the last document", lambda: _find_document(out, manifest, last))


def _find_document(out: Path, manifest: dict[str, Any], number: int) -> None:
    with suppress(VerifyError):  # the made-up shard is found, and holds no index
        find_document(out, manifest, number)


def _read_done(plan: Plan, out: Path) -> None:
    for part in plan.parts:
        path = out / PARTS / part_name(part.index)
        if read_committed(path, part.fingerprint(plan.spec), out) is None:
            raise AssertionError(f"{path} stands")


def _config(out: Path, paths: tuple[str, ...]) -> Config:
    default = Config()
    config = replace(
        default,
        input=replace(default.input, paths=paths),
        output=replace(default.output, dir=str(out)),
    )
    return resolve(config, TOKENIZER, "text")


def _counts(n_bytes: int) -> Counts:
    tokens = n_bytes // INPUT_BYTES_PER_TOKEN
    documents = max(1, tokens // TOKENS_PER_DOCUMENT)
    return Counts(documents, documents, tokens, n_bytes * 9 // 10, n_bytes)


def _commit(plan: Plan, part: Part) -> None:
    """Write a part's record and sparse files: one step, whose one shard holds what it counts."""
    counts = {i: _counts(piece.n_bytes) for i, piece in enumerate(part.slices)}
    total = Counts()
    for one in counts.values():
        total.add(one)
    stem, out = shard_stem("train", part.index, 0), Path(plan.spec.config.output.dir)
    sizes = {"bin": total.tokens * BYTES_PER_TOKEN, "idx": 42 + 20 * total.documents}
    entries, checksum = [], Checksum(BLAKE3, sha256_hex(stem.encode()))
    for kind, n_bytes in sizes.items():
        entries.append(FileEntry(f"{stem}.{kind}", n_bytes, checksum))
        with (out / f"{stem}.{kind}").open("wb") as file:
            file.truncate(n_bytes)
    shard = ShardEntry("train", total.documents, total.tokens, tuple(entries))
    commit = Commit((shard,), None, counts, (0,) * 9 + (total.documents,), None)
    record = PartRecord(part.index, part.fingerprint(plan.spec), (commit,))
    (out / PARTS / part_name(part.index)).write_bytes(record.as_bytes())


TOKENIZER = Tokenizer(
    name="made up",
    kind="json",
    data=b"",
    json="",
    sha256="0" * 64,
    vocab_size=50_257,
    eos=Token(50_256, "<eos>"),
    bos=None,
    special_ids=(50_256,),
    chat_template=None,
    max_emittable_id=50_256,
)
ENGINE = EngineChoice("tokenizers", "0", "made up")
