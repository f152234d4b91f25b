"""A whole run: plan or continue, work through the parts, write the manifest."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from tokmill.encode.cache import choice_key, remember, remembered
from tokmill.encode.candidate import TIMED_OUT
from tokmill.encode.choose import PARITY_BYTES, EngineChoice, Sample, choose_engine
from tokmill.encode.engine import REFERENCE, engine_version, load_engine
from tokmill.encode.tokenizer import Tokenizer, load_tokenizer
from tokmill.errors import StateError, UsageError
from tokmill.executors import serial
from tokmill.executors.directory import (
    clear,
    is_unstarted,
    refuse_foreign,
    refuse_stdin,
    sweep,
)
from tokmill.executors.watch import RejectWatch
from tokmill.pipeline.finish import PROBE_TEXT, Usage, finish
from tokmill.pipeline.plan import (
    Plan,
    check_same,
    make_parts,
    planned_engine,
    read_plan,
    resolve,
    write_plan,
)
from tokmill.pipeline.spec import Part, RunSpec
from tokmill.pipeline.survey import Survey, survey
from tokmill.render.renderer import make_renderer
from tokmill.shards.layout import MANIFEST, PARTS, PLAN, REJECTS, part_name
from tokmill.shards.reader import read_manifest
from tokmill.shards.record import canonical_json, read_committed, sha256_hex
from tokmill.sources.files import Discovery, SourceFile, discover
from tokmill.sources.open import first_records, probe
from tokmill.storage import locked, make_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokmill.config import Config
    from tokmill.encode.engine import Engine
    from tokmill.pipeline.spec import Progress
    from tokmill.render.chat.renderer import ChatRenderer
    from tokmill.render.renderer import Renderer

TIMED_FROM_BYTES = 128 << 20
"""Below this much input the first exact engine is taken: timing both costs more than it saves."""

TIMED_FROM_BYTES_PER_ID = 2 << 10
"""The same for each id of the vocabulary, which is what the engines' loading takes its time for."""

TIMED_SAMPLE_BYTES = 4 << 20


class Observer(Protocol):
    """What a run tells about itself while it goes on."""

    def started(self, plan: Plan, n_done: int, ignored: Sequence[str]) -> None:
        """Hear that the plan stands; `n_done` parts are already committed."""

    def progressed(self, progress: Progress) -> None:
        """Hear increments."""

    def peak_memory_bytes(self) -> int:
        """Give the peak so far of the process tree's memory, 0 if unknown."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs, tokenizer and renderer of a run, before an engine is chosen."""

    config: Config
    files: tuple[SourceFile, ...]
    ignored: tuple[str, ...]
    tokenizer: Tokenizer
    renderer: Renderer | ChatRenderer
    parts: tuple[Part, ...]
    template: str = ""

    def spec(self, engine: EngineChoice, n_threads: int) -> RunSpec:
        """Give the run, once its engine is chosen."""
        return RunSpec(self.config, self.tokenizer, engine, n_threads, self.template)


def prepare(config: Config) -> Prepared:
    """Find the inputs, load the tokenizer, settle the renderer and cut the parts; writes nothing.

    Raises:
        TokmillError: a path, the tokenizer, its eos, the renderer or the dtype is wrong.
    """
    if not config.input.paths:
        raise UsageError("no input: name files, directories or globs, or set input.paths")
    if not config.tokenizer.path:
        raise UsageError("no tokenizer: give --tokenizer, a file, a directory or a Hub name")
    tokenizer = load_tokenizer(config.tokenizer, for_chat=config.sft is not None)
    found = discover(config.input)
    if config.sft is not None:
        return _prepare_chat(config, tokenizer, found)
    keys = list(probe(found.files, config.input))
    renderer = make_renderer(config.render, keys)
    resolved = resolve(config, tokenizer, renderer.name)
    parts = make_parts(found.files, config.output.part_bytes)
    return Prepared(resolved, tuple(found.files), tuple(found.ignored), tokenizer, renderer, parts)


def _prepare_chat(config: Config, tokenizer: Tokenizer, found: Discovery) -> Prepared:
    from tokmill.pipeline.chat import check_boundary, make_chat_renderer, settle

    records = first_records(found.files, config.input)
    config, tokenizer, template = settle(config, tokenizer, records)
    resolved = resolve(config, tokenizer, "auto")
    renderer = make_chat_renderer(resolved, tokenizer, template)
    check_boundary(resolved, tokenizer, renderer)
    parts = make_parts(found.files, resolved.output.part_bytes)
    return Prepared(
        resolved, tuple(found.files), tuple(found.ignored), tokenizer, renderer, parts, template
    )


def sample(prepared: Prepared, limit_bytes: int, *, at_random: bool = False) -> Survey:
    """Sample the input; nothing from a source that can be read only once."""
    if any(file.path == "-" for file in prepared.files):
        return Survey()
    settings = prepared.config.input
    return survey(prepared.parts, settings, prepared.renderer, limit_bytes, at_random=at_random)


def reference_of(prepared: Prepared) -> Callable[[], Engine]:
    """Give what loads the engine that the others are held against, once."""
    control = prepared.config.tokenizer.control_tokens_in_text

    @cache
    def load() -> Engine:
        return load_engine(REFERENCE, prepared.tokenizer, control_in_text=control, n_threads=1)

    return load


def choose(prepared: Prepared, reference: Callable[[], Engine], n_threads: int) -> EngineChoice:
    """Choose the engine for a corpus, or remember what was chosen for it on this machine.

    A corpus of some size has the candidates timed on a sample of its own; for less, the first
    exact one will do, and that depends on the tokenizer alone.
    """
    config = prepared.config
    asked, control = config.run.engine, config.tokenizer.control_tokens_in_text
    n_bytes = sum(file.n_bytes for file in prepared.files)
    per_id = TIMED_FROM_BYTES_PER_ID * prepared.tokenizer.vocab_size
    timed = n_bytes >= max(TIMED_FROM_BYTES, per_id)
    corpus = [[file.path, file.n_bytes, file.mtime_ns] for file in prepared.files] if timed else []
    key = choice_key(
        prepared.tokenizer, asked, control, str(n_threads), sha256_hex(canonical_json(corpus))
    )
    known = remembered(key)
    if known is not None:
        with suppress(TypeError):  # kept by another version
            return EngineChoice.from_json(known)

    def take() -> Sample:
        found = sample(prepared, TIMED_SAMPLE_BYTES if timed else PARITY_BYTES, at_random=timed)
        text_bytes = n_bytes * found.text_bytes // max(1, found.input_bytes)
        return Sample(found.texts, text_bytes, found.new_share(n_bytes) if timed else 1.0)

    choice = choose_engine(
        prepared.tokenizer,
        reference,
        take,
        asked=asked,
        control_in_text=control,
        n_threads=n_threads,
        timed=timed,
    )
    if not any(reason.startswith(TIMED_OUT) for reason in choice.refused.values()):
        remember(key, choice.as_json())
    return choice


def cores() -> int:
    """Give the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def layout_of_work(config: Config, n_parts: int) -> tuple[int, int]:
    """Give (worker processes, threads in each); one process with all threads by default."""
    if "-" in config.input.paths:
        n_parts = 1  # a spawned process has no standard input
    workers = max(1, min(config.run.workers or 1, n_parts))
    threads = config.run.threads or max(1, cores() // workers)
    return workers, threads


def run(config: Config, observer: Observer, *, overwrite: bool = False) -> dict[str, Any]:
    """Make a dataset, or continue one, and give its manifest.

    Raises:
        TokmillError: see `errors`; what is committed stays, nothing half-written does.
    """
    if not config.output.dir:
        raise UsageError("no output: give --output, a directory to write the dataset to")
    start_wall, start_cpu = time.perf_counter(), _cpu_s()
    prepared = prepare(config)
    directory = Path(config.output.dir)
    make_directory(directory)
    with locked(directory):
        workers, threads = layout_of_work(prepared.config, len(prepared.parts))
        os.environ.setdefault("RAYON_NUM_THREADS", str(threads))
        reference = reference_of(prepared)
        plan = _plan(prepared, reference, directory, threads, overwrite=overwrite)
        done = [part for part in plan.parts if _is_done(plan, part, directory)]
        observer.started(plan, len(done), prepared.ignored)
        prepared_s = time.perf_counter() - start_wall
        if len(done) == len(plan.parts) and (directory / MANIFEST).exists():
            return read_manifest(directory)
        (directory / MANIFEST).unlink(missing_ok=True)  # files of it were gone: not complete now
        watch = RejectWatch(plan, observer.progressed)
        if workers == 1:
            found = serial.run_parts(plan.spec, plan.parts, watch.progressed, reference)
        else:
            from tokmill.executors import processes  # costs 0.1 s

            found = processes.run_parts(plan.spec, plan.parts, watch.progressed, workers)
        try:
            records = sorted(found, key=lambda record: record.part)
        except BaseException:
            sweep(directory)  # workers that were stopped could not
            raise
        watch.check_at_end()
        usage = Usage(
            time.perf_counter() - start_wall,
            _cpu_s() - start_cpu,
            observer.peak_memory_bytes(),
            len(done),
            watch.text_bytes,
            workers,
            {"prepare": prepared_s, **watch.stage_s},
        )
        probe_ids = reference().encode(pa.array([PROBE_TEXT], pa.large_string())).ids
        return finish(plan, records, probe_ids.tolist(), usage, _mask(plan, reference))


def _mask(plan: Plan, reference: Callable[[], Engine]) -> dict[str, Any] | None:
    """Give what the manifest says of the masks; None for pretraining."""
    if plan.spec.config.sft is None:
        return None
    from tokmill.pipeline.mask_rule import describe_rule

    return describe_rule(plan.spec, reference())


def _plan(
    prepared: Prepared,
    reference: Callable[[], Engine],
    directory: Path,
    n_threads: int,
    *,
    overwrite: bool,
) -> Plan:
    anew = overwrite or is_unstarted(directory)
    found = None if anew else read_plan(directory)
    if found is None:
        if not (directory / PLAN).exists():
            refuse_foreign(directory)
        engine = choose(prepared, reference, n_threads)
    else:
        refuse_stdin(prepared.files, directory)
        engine = planned_engine(found, prepared.config.run.engine)
        _check_engine(engine, prepared)
    plan = Plan(prepared.spec(engine, n_threads), prepared.parts)
    if found is not None:
        check_same(found, plan, directory)
    else:
        clear(directory)  # as late as this: what fails before leaves the old dataset whole
        write_plan(directory, plan)  # first: files without a plan are taken for somebody else's
    for name in (PARTS, REJECTS):
        make_directory(directory / name)
    sweep(directory)
    return plan


def _check_engine(engine: EngineChoice, prepared: Prepared) -> None:
    installed = engine_version(engine.name, prepared.tokenizer)
    if installed != engine.version:
        raise StateError(
            f"the run in this directory began with {engine.name} {engine.version}, installed is "
            f"{installed}: install that version, or run with --overwrite to start anew"
        )


def _is_done(plan: Plan, part: Part, directory: Path) -> bool:
    path = directory / PARTS / part_name(part.index)
    return (
        path.exists() and read_committed(path, part.fingerprint(plan.spec), directory) is not None
    )


def _cpu_s() -> float:
    """Give the CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
