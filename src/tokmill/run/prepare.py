"""Prepare a run: find the inputs, load the tokenizer and the renderer, make the parts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tokmill.engines.engine import REFERENCE
from tokmill.engines.store import EngineStore
from tokmill.errors import UsageError
from tokmill.extensions import find
from tokmill.fields import counted, describe_fields, used_paths, used_share
from tokmill.recipes.spec import Part, RunSpec
from tokmill.render.detect import detect, is_named, nested_keys, template_option
from tokmill.render.function import find_renderer, is_local
from tokmill.render.renderer import make_renderer
from tokmill.run.forecast.read_sample import read_sample
from tokmill.run.forecast.sample import InputSample
from tokmill.run.head_start import begun_for
from tokmill.run.plan import make_parts, resolve
from tokmill.sources.file_contents import check_contents
from tokmill.sources.files import Discovery, SourceFile, discover
from tokmill.sources.first_records import first_records, sample_fields
from tokmill.tables import ENGINES, FORMATS
from tokmill.tokenizer.tokenizer import Tokenizer, load_tokenizer
from tokmill.values import WHOLE_RECORD
from tokmill.words.plural import plural
from tokmill.words.units import size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tokmill.chat.renderer import ChatRenderer
    from tokmill.engines.choice import EngineChoice
    from tokmill.engines.engine import Engine
    from tokmill.extensions import Extension
    from tokmill.fields import FieldSample
    from tokmill.render.renderer import Renderer
    from tokmill.settings.schema import Config, InputSettings


LARGE_TEXT_BYTES = 1 << 20
"""A document of this size has some 250,000 tokens: more than most models read."""

_SPLIT = "--text-separator '\\n\\n' splits at empty lines"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Inputs, tokenizer and renderer of a run, before an engine is chosen.

    `fields`: those of its first records; None for chats. `is_named`: the settings name the fields
    to use. `engines`: those that this process has loaded.
    """

    config: Config
    found: Discovery
    tokenizer: Tokenizer
    renderer: Renderer | ChatRenderer
    parts: tuple[Part, ...]
    template: str = ""
    fields: FieldSample | None = None
    is_named: bool = True
    engines: EngineStore = field(default_factory=EngineStore, compare=False, repr=False)

    @property
    def files(self) -> Sequence[SourceFile]:
        """Return the input files, in order."""
        return self.found.files

    def fields_note(self) -> str:
        """Return a line on the used and unused fields of the first records; '' for chats.

        If one field was detected and others have text, the line names the option to use all.
        """
        sample = self.fields
        if sample is None or not sample.n_records or WHOLE_RECORD in self.renderer.schema.names:
            return ""
        render, used = self.config.render, used_paths(self.renderer.schema)
        counts = counted(sample.weighed(render.text_field), used)
        is_one = render.renderer == "text" and not self.is_named
        is_all = not is_one or used_share(counts, used) == 1
        option = "" if is_all else template_option(sample, render.text_field)
        return describe_fields(counts, used) + (f"; to take all: {option}" if option else "")

    def notes(self) -> list[str]:
        """Return notes for the user: eos, texts as chats, ignored files, large texts."""
        eos = self.tokenizer.eos_note
        large = large_text_notes(self.files, self.config.input)
        return [*filter(None, (eos, self._text_note())), *self.found.ignored, *large]

    def _text_note(self) -> str:
        if self.config.sft is None:
            return ""
        from tokmill.chat.reading.detect import text_note

        return text_note(self.config.sft)

    def all_notes(self) -> list[str]:
        """Return the notes, and the line on fields."""
        fields = self.fields_note()
        return [*self.notes(), *([f"fields: {fields}"] if fields else [])]

    @property
    def labels(self) -> frozenset[str]:
        """Return the fields whose values repeat in the first records; see `FieldSample.labels`."""
        sample = self.fields
        return frozenset() if sample is None else sample.labels(self.config.render.text_field)

    def spec(self, engine: EngineChoice, n_threads: int, memory_bytes: int = 0) -> RunSpec:
        """Return the run, once its engine is chosen; see `RunSpec`."""
        known = (self.template, memory_bytes, self.is_named, self.labels)
        formats = {file.format for file in self.files}
        extensions = extensions_of(self.config, engine.name, formats)
        return RunSpec(
            self.config, self.tokenizer, engine, n_threads, *known, extensions, self.engines
        )

    def with_checksum(self, algorithm: str) -> Prepared:
        """Return the same run with another checksum algorithm."""
        output = replace(self.config.output, checksum=algorithm)
        return replace(self, config=replace(self.config, output=output))


def extensions_of(config: Config, engine: str, formats: Iterable[str]) -> tuple[Extension, ...]:
    """Return everything that a run uses and that did not come with tokmill.

    `engine`, `formats`: the names of its engine and of the formats of its input.
    """
    found = [find(FORMATS, name) for name in sorted(formats)]
    outside = [one.extension for one in (*found, find(ENGINES, engine))]
    if config.sft is None:
        outside.append(find_renderer(config.render.renderer).extension)
    else:
        from tokmill.chat.templates import template_extension

        outside.append(template_extension(config.sft.template))
    return tuple(extension for extension in outside if extension)


def prepare(config: Config, commits: Mapping[str, str] | None = None) -> Prepared:
    """Find the inputs, load the tokenizer, detect the renderer, make the parts; write nothing.

    `commits`: of Hub datasets, by path, from the plan of an earlier attempt.

    Raises:
        TokmillError: a path, the tokenizer, its eos, the renderer or the dtype is wrong.
    """
    if not config.input.paths:
        raise UsageError(
            "no input: name files, directories or globs, or set input.paths in a --config file"
        )
    if not config.tokenizer.path:
        raise UsageError("no tokenizer: give --tokenizer, a file, a directory or a Hub name")
    if config.run.workers > 1 and is_local(config.render.renderer):
        raise UsageError(
            f"renderer {config.render.renderer}: workers cannot import a function of __main__, a "
            "notebook cell or a lambda: put it into a module, or use one worker"
        )
    begun = begun_for(config)
    is_chat = config.sft is not None
    tokenizer = begun.tokenizer if begun else load_tokenizer(config.tokenizer, for_chat=is_chat)
    found = discover(config.input, commits)
    check_contents(found.files, config.input)
    engines = begun.engines if begun else EngineStore()
    if is_chat:
        return _prepare_chat(config, tokenizer, found, engines)
    fields = sample_fields(found.files, config.input, nested_keys(config.render))
    render = detect(config.render, fields, fields.where)
    renderer = make_renderer(render, fields)
    resolved = resolve(replace(config, render=render), tokenizer, render.renderer)
    parts = make_parts(found.files, config.output.part_bytes)
    known = ("", fields, is_named(config.render))
    return Prepared(resolved, found, tokenizer, renderer, parts, *known, engines)


def _prepare_chat(
    config: Config, tokenizer: Tokenizer, found: Discovery, engines: EngineStore
) -> Prepared:
    from tokmill.recipes.sft_setup import check_boundary, make_chat_renderer, resolve_sft

    records = first_records(found.files, config.input)
    config, tokenizer, template = resolve_sft(config, tokenizer, records)
    resolved = resolve(config, tokenizer, "auto")
    renderer = make_chat_renderer(resolved, tokenizer, template)
    check_boundary(resolved, tokenizer, renderer)
    parts = make_parts(found.files, resolved.output.part_bytes)
    return Prepared(resolved, found, tokenizer, renderer, parts, template, engines=engines)


def sample(
    prepared: Prepared,
    limit_bytes: int,
    *,
    at_random: bool = False,
    weighs: bool = False,
    keep_blocks: bool = False,
) -> InputSample:
    """Return a sample of the input; empty for standard input. See `read_sample`."""
    if any(file.path == "-" for file in prepared.files):
        return InputSample()
    settings = prepared.config.input
    return read_sample(
        prepared.parts,
        settings,
        prepared.renderer,
        limit_bytes,
        at_random=at_random,
        labels=prepared.labels if weighs else None,
        keep_blocks=keep_blocks,
    )


def reference_of(prepared: Prepared) -> Callable[[], Engine]:
    """Return a function that loads the reference engine, once for all threads."""
    control = prepared.config.tokenizer.control_tokens_in_text
    return prepared.engines.share(
        REFERENCE, prepared.tokenizer, control_in_text=control, n_threads=1
    )


def large_text_notes(files: Sequence[SourceFile], settings: InputSettings) -> list[str]:
    """Return a note if text files of `LARGE_TEXT_BYTES` or more become one document each."""
    if settings.text_separator:
        return []
    large = [f for f in files if f.format == "text" and f.n_bytes >= LARGE_TEXT_BYTES]
    if not large:
        return []
    first = f"{large[0].path}, {size(large[0].n_bytes)},"
    if len(large) == 1:
        return [f"{first} becomes one document: {_SPLIT}"]
    others = plural(len(large) - 1, "other large text file")
    return [f"{first} and {others} become one document each: {_SPLIT}"]
