"""Prepare a run: find the inputs, load the tokenizer, make the parts, choose engine and workers.

The threads of one process wait for its GIL and for its reader. Beyond some threads more processes
are faster, if there are parts for all of them and enough input to pay for their start.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from tokmill.engines.choose import SAMPLE_BYTES, EngineRequest, choose_engine
from tokmill.engines.engine import REFERENCE
from tokmill.engines.loaded import EngineStore
from tokmill.errors import UsageError
from tokmill.extensions import find
from tokmill.machine.limits import usable_cores, usable_memory
from tokmill.recipes.memory_bounds import BASE_BYTES, ENGINE_THREAD_BYTES
from tokmill.recipes.spec import Part, RunSpec
from tokmill.rendering.function import FunctionRenderer, find_renderer
from tokmill.rendering.renderer import make_renderer
from tokmill.rendering.user_functions import find_function, functions_of, local_function
from tokmill.rendering.where import RecordFilter
from tokmill.run.plan import cut_into_parts, resolve
from tokmill.run.readings import FoundReading, find_readings, first_document, inputs_of
from tokmill.run.sample import sampled_texts
from tokmill.sources.files import Discovery, SourceFile
from tokmill.sources.formats import format_named
from tokmill.tables import ENGINES, FORMATS
from tokmill.tokenizer.control_tokens import added_tokens, with_control_tokens
from tokmill.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tokmill.words import plural, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.chat.render_pool import ChatRenderer, RenderPool
    from tokmill.engines.choice import EngineChoice
    from tokmill.extensions import Extension
    from tokmill.rendering.renderer import Renderer
    from tokmill.settings.schema import Config, InputSettings, RenderSettings


LARGE_TEXT_BYTES = 1 << 20
"""A document of this size has some 250,000 tokens: more than most models read."""

UNDIVIDED_BYTES = 4 << 30
"""A piece of input of more bytes that cannot be divided takes minutes to begin again."""

_MOST_SHOWN = 8
_SHOWN_CHARACTERS = 300

MOST_THREADS = 6
"""Threads that one process keeps busy: for a MB of text a thread works for 7 ms (English) to 15 ms
(Chinese), 1.0 to 1.4 ms of them with the GIL held (gpt2, AMD EPYC)."""

MOST_THREADS_GZIP = 4
"""The same if the reader decompresses gzip, which takes 1.8 ms for a MB."""

MOST_THREADS_CHAT = 3
"""The same for chats: of 16 ms for a MB of Alpaca, qwen2.5, 5 are with the GIL held."""

LEAST_WORKER_BYTES = 1 << 30
"""Input that pays for one worker more: a process starts for 2 s, and encodes 0.7 GB a second."""

_NEARLY = 1.2
"""Fewer workers are taken if they are slower by less: more need memory, and each process has a
reader and a writer, which take a sixth of the processor time."""

_MEMORY_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs, tokenizer and parts of a run, before an engine is chosen.

    `readings`: how the files are read, at least one, in the order of their first files. `bad`: a
    line for each file that was left out, as it cannot be read. `workers`, `threads`: processes,
    and the threads of each. `engines`: those that this process has loaded. `chats`: the renderer of
    a run of SFT; it holds the processes that render.
    """

    config: Config
    discovery: Discovery
    tokenizer: Tokenizer
    readings: tuple[FoundReading, ...]
    parts: tuple[Part, ...]
    workers: int
    threads: int
    template: str = ""
    bad: tuple[str, ...] = ()
    engines: EngineStore = field(default_factory=EngineStore, compare=False, repr=False)
    chats: ChatRenderer | None = field(default=None, compare=False, repr=False)

    @property
    def command(self) -> str:
        """Return the command of the run: `pretrain` or `sft`."""
        return "pretrain" if self.config.sft is None else "sft"

    def notes(self, *, with_fields: bool) -> list[str]:
        """Return notes for the user: eos, ignored files, large texts, readings, first documents.

        `with_fields`: the line of `fields_note`, too.
        """
        texts = []
        if self.config.sft is not None:
            from tokmill.chat.reading.detect import text_note

            texts = [text_note(group.reading.sft) for group in self.readings if group.reading.sft]
        notes = [
            *self.tokenizer.notes,
            *filter(None, dict.fromkeys(texts)),
            *self.discovery.notes,
            *large_text_notes(self.discovery.files, self.config.input),
            *undivided_notes(self.parts, self.config.output.part_bytes),
        ]
        shown, n_more = self.readings[:_MOST_SHOWN], len(self.readings) - _MOST_SHOWN
        if self._are_own:
            notes += [f"{group.reading.files}: {group.in_words()}" for group in shown]
            notes += [f"{plural(n_more, 'other group')} of files"] if n_more > 0 else []
        else:
            scripts = self.readings[0].scripts_note()
            notes += [f"sections: {scripts}"] if scripts else []
            fields = self.fields_note() if with_fields else ""
            notes += [f"fields: {fields}"] if fields else []
        for group in shown:
            where = f" of {group.reading.files}" if self._are_own else ""
            if text := first_document(group):
                beginning = json.dumps(text[:_SHOWN_CHARACTERS], ensure_ascii=False)
                rest = len(text) - _SHOWN_CHARACTERS
                more = f" and {plural(rest, 'more character')}" if rest > 0 else ""
                notes.append(f"first document{where}: {beginning}{more}")
        return notes

    @property
    def _are_own(self) -> bool:
        """Return whether not all files are read by the settings of the run."""
        return len(self.readings) > 1 or bool(self.readings[0].reading.source)

    def fields_note(self) -> str:
        """Return a line on the used and unused fields of the first records; '' for chats.

        If files are read in several ways, each has its own line among the notes.
        """
        return "" if self._are_own else self.readings[0].fields_note()

    def renderers(self) -> dict[SourceFile, tuple[InputSettings, Renderer | ChatRenderer]]:
        """Return the settings of reading and the renderer of each file, as a sample reads them."""
        of_file: dict[SourceFile, tuple[InputSettings, Renderer | ChatRenderer]] = {}
        for group in self.readings:
            reading = group.reading
            if reading.sft is None:
                made: dict[RenderSettings, Renderer] = {}
                for file in group.files:
                    own = group.settings_of(file)
                    if own not in made:
                        made[own] = make_renderer(own, group.fields)
                    of_file[file] = reading.input, made[own]
            else:
                from tokmill.recipes.sft_setup import make_chat_renderer

                config = replace(self.config, sft=reading.sft)
                chats = make_chat_renderer(config, self.tokenizer, self.template)
                of_file |= dict.fromkeys(group.files, (reading.input, chats))
        return of_file

    def spec(self, engine: EngineChoice) -> RunSpec:
        """Return the run, once its engine is chosen; see `RunSpec`."""
        return RunSpec(
            self.config,
            self.tokenizer,
            engine,
            self.threads,
            self.template,
            usable_memory() // self.workers,
            self._extensions(engine.name),
            self.engines,
            readings=tuple(group.reading for group in self.readings),
        )

    def _extensions(self, engine: str) -> tuple[Extension, ...]:
        """Return everything that the run uses and that did not come with tokmill."""
        formats = sorted({file.format for file in self.discovery.files})
        outside = [find(FORMATS, name).extension for name in formats]
        outside.append(find(ENGINES, engine).extension)
        filters = dict.fromkeys(group.reading.input.where for group in self.readings)
        outside += [find_function("where", name).extension for name in filters if name]
        if self.config.sft is None:
            names = dict.fromkeys(group.reading.render.renderer_name for group in self.readings)
            outside += [find_renderer(name).extension for name in names]
        else:
            from tokmill.chat.template_source import template_extension

            outside.append(template_extension(self.config.sft.template))
        return tuple(filter(None, outside))


def prepare(
    config: Config, commits: Mapping[str, str] | None = None, *, leave_bad_out: bool = False
) -> Prepared:
    """Find the inputs, load the tokenizer, decide how files are read, make the parts.

    Nothing is written. `commits`: of Hub datasets, by path, from the plan of an earlier attempt.
    `leave_bad_out`: a file that cannot be read is left out, if others can be.

    Raises:
        TokmillError: a path, the tokenizer, its eos, the renderer or the dtype is wrong.
    """
    is_chat = config.sft is not None
    tokenizer = tokenizer_of_run(config)
    inputs = inputs_of(config, commits)
    is_alone = sum(len(source.discovery.files) for source in inputs) < 2
    bad: list[str] | None = [] if leave_bad_out and not is_alone else None
    readings = find_readings(inputs, tokenizer, bad)
    columns = zip(*(source.discovery for source in inputs), strict=True)
    discovery = Discovery(*(list(chain(*column)) for column in columns))
    if bad and not readings:
        raise UsageError(bad[0])
    template, pool = "", None
    if is_chat:
        # Held until there is a renderer: a child that reads this template is to render with it.
        config, tokenizer, pool = _resolve_chats(config, tokenizer, readings)
        template = pool.source
    only = readings[0].reading
    if len(readings) == 1:
        config = replace(
            config,
            input=replace(only.input, paths=config.input.paths, sources=config.input.sources),
            render=only.render,
        )
    tokenizer = with_control_tokens(tokenizer, placed_tokens(readings, tokenizer))
    config = resolve(config, tokenizer, sum(file.n_bytes for file in discovery.files))
    # Files that are read in one way stand together: two kinds in turn would be a part each.
    groups = [group.files for group in readings]
    files = list(chain.from_iterable(groups))
    parts = cut_into_parts(groups, config.output.part_bytes)
    workers, threads = workers_and_threads(config, parts)
    prepared = Prepared(
        config, discovery._replace(files=files), tokenizer, tuple(readings), parts, workers,
        threads, template, tuple(bad or ()),
    )  # fmt: skip
    if is_chat:
        from tokmill.recipes.sft_setup import make_chat_renderer

        prepared = replace(prepared, chats=make_chat_renderer(config, tokenizer, template))
    return prepared


def tokenizer_of_run(config: Config) -> Tokenizer:
    """Return the tokenizer of a run, whose settings name all that it needs.

    Raises:
        TokmillError: input, tokenizer or a function of the user is not named, or wrong.
    """
    if not config.input.all_paths:
        raise UsageError(
            "no input: name files, directories or globs, or set input.paths in a --config file"
        )
    if not config.tokenizer.path:
        raise UsageError("no tokenizer: give --tokenizer, a file, a directory or a Hub name")
    if config.run.workers > 1 and (function := local_function(config)):
        raise UsageError(
            f"{function}: workers cannot import a function of __main__, a notebook cell or a "
            "lambda: put it into a module, or use one worker"
        )
    for kind, name in functions_of(config):
        if kind == "where":
            RecordFilter(name)
        else:
            FunctionRenderer(find_renderer(name).value, name)
    return load_tokenizer(config.tokenizer, for_chat=config.sft is not None)


def placed_tokens(readings: Sequence[FoundReading], tokenizer: Tokenizer) -> list[str]:
    """Return the control tokens that the renderers say they place.

    Raises:
        UsageError: the tokenizer does not have one of them.
    """
    placed: dict[str, None] = {}
    for reading in (group.reading for group in readings if group.reading.sft is None):
        renderer = make_renderer(reading.render)
        for content in getattr(renderer, "control_tokens", ()):
            if content not in added_tokens(tokenizer):
                raise UsageError(
                    f"renderer {renderer.name}: its control token {content!r} is no added token of "
                    f"{tokenizer.name}: name one that it has"
                )
            placed[content] = None
    return list(placed)


def _resolve_chats(
    config: Config, tokenizer: Tokenizer, readings: list[FoundReading]
) -> tuple[Config, Tokenizer, RenderPool]:
    """Resolve the settings that all chats share, and put them into every reading."""
    from tokmill.recipes.sft_setup import common_settings, resolve_sft, sft_settings

    own = [group.reading.sft for group in readings if group.reading.sft is not None]
    config = replace(config, sft=common_settings(sft_settings(config), own))
    config, tokenizer, pool = resolve_sft(config, tokenizer)
    resolved = sft_settings(config)
    for group, sft in zip(readings, own, strict=True):
        sft = replace(sft, instruction=resolved.instruction, weights=resolved.weights)
        group.reading = replace(group.reading, sft=sft)
    return config, tokenizer, pool


def choose_run_engine(
    prepared: Prepared, note: Callable[[str], None] = lambda _: None
) -> EngineChoice:
    """Return the engine of a run, exact and fastest on a sample of its input.

    `note` gets lines on what is compared.

    Raises:
        TokenizerError: the engine asked for is missing, refuses the tokenizer or is not exact.
    """
    config, files = prepared.config, prepared.discovery.files
    control = config.tokenizer.control_tokens_in_text

    is_stream = any(file.path == "-" for file in files)

    @cache
    def read(limit_bytes: int) -> tuple[list[str], int]:
        if is_stream:
            return [], 0
        return sampled_texts(prepared.parts, prepared.renderers(), limit_bytes)

    n_bytes = None if is_stream else sum(file.n_bytes for file in files)
    is_packed = any(
        file.compression or not format_named(file.format).has_byte_ranges for file in files
    )
    if is_packed and not is_stream and config.run.engine == "auto":
        n_bytes = read(SAMPLE_BYTES)[1]  # the text can be much larger
    request = EngineRequest(
        prepared.tokenizer,
        config.run.engine,
        control,
        prepared.threads,
        n_bytes,
        lambda limit_bytes: read(limit_bytes)[0],
        prepared.engines,
        note,
    )
    choice = choose_engine(request, has_continuations=config.sft is not None)
    names = {REFERENCE, choice.name}
    prepared.engines.keep(names | ({choice.continuation.name} if choice.continuation else set()))
    return choice


def undivided_notes(parts: Sequence[Part], part_bytes: int) -> list[str]:
    """Return a note if a part is much larger than asked for, as a file of it cannot be divided."""
    least = max(UNDIVIDED_BYTES, part_bytes)
    large = [piece for part in parts for piece in part.slices if piece.n_bytes > least]
    if not large:
        return []
    others = f" and {plural(len(large) - 1, 'other piece')}" if len(large) > 1 else ""
    return [
        f"{large[0].file.path}, {size(large[0].n_bytes)},{others} cannot be divided: each is read "
        "by one process, and begins again after a stop; to divide it, split it into files, or "
        "compress it as .zst with many frames (pzstd)"
    ]


def large_text_notes(files: Sequence[SourceFile], settings: InputSettings) -> list[str]:
    """Return a note if text files of `LARGE_TEXT_BYTES` or more become one document each."""
    large = [file for file in files if file.format == "text" and file.n_bytes >= LARGE_TEXT_BYTES]
    if settings.text_separator or not large:
        return []
    become = "becomes one document"
    if len(large) > 1:
        others = plural(len(large) - 1, "other large text file")
        become = f"and {others} become one document each"
    return [
        f"{large[0].path}, {size(large[0].n_bytes)}, {become}: "
        "--text-separator='\\n\\n' splits at empty lines"
    ]


# How many worker processes a run gets, and how many threads each


def workers_and_threads(config: Config, parts: Sequence[Part]) -> tuple[int, int]:
    """Return (worker processes, threads in each).

    What the settings name holds, but there are no more workers than parts; with `threads` alone
    there is one. By default a worker has as many threads as it keeps busy.
    """
    run = config.run
    n_parts = 1 if "-" in config.input.all_paths else len(parts)  # a worker has no standard input
    n_cores = usable_cores()
    if run.workers or run.threads:
        workers = max(1, min(run.workers or 1, n_parts))
        return workers, run.threads or max(1, n_cores // workers)
    if local_function(config):
        n_parts = 1  # a worker cannot import it
    n_bytes = sum(piece.n_bytes for part in parts for piece in part.slices)
    n_parts = min(n_parts, max(1, n_bytes // LEAST_WORKER_BYTES))
    busy = most_threads(config, parts)
    enough = math.ceil(n_cores / (_NEARLY * busy))
    # All workers, with half the engine cache that a thread may have, within the memory.
    caches = n_cores * ENGINE_THREAD_BYTES // 2
    most = (int(usable_memory() * _MEMORY_SHARE) - caches) // BASE_BYTES
    workers, more = (max(1, min(n, n_parts, most)) for n in (enough, enough + 1))
    # Threads that have work; a quotient that is rounded down can leave cores without any.
    used, used_by_more = (n * min(n_cores // n, busy) for n in (workers, more))
    if _NEARLY * used < used_by_more:
        workers = more
    return workers, max(1, n_cores // workers)


def most_threads(config: Config, parts: Sequence[Part]) -> int:
    """Return the threads that one process keeps busy with these parts."""
    if config.sft is not None:
        return MOST_THREADS_CHAT
    pieces = [piece for part in parts for piece in part.slices]
    n_bytes = sum(piece.n_bytes for piece in pieces)
    n_gzip = sum(piece.n_bytes for piece in pieces if piece.file.compression == "gz")
    return MOST_THREADS_GZIP if 2 * n_gzip > n_bytes else MOST_THREADS
