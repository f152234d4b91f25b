"""Decide how each file is read: a renderer, or a schema of chats, for groups of alike files.

The first records of some files are read. Files of one folder and format whose records have the same
keys are looked at together; groups of a source that come to the same settings are one reading. A
file that was not looked at is read like the others of its folder, and checked when its first block
is read (`run.part`).
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice
from os.path import abspath
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from tokmill.errors import StorageError, UsageError
from tokmill.recipes.spec import ReadingSettings
from tokmill.rendering.detect import (
    HEAD_LETTERS,
    detect,
    is_named,
    nested_keys,
    sampled_renderer,
    section_paths,
    sections_renderer,
    share,
    template_option,
)
from tokmill.rendering.fields import (
    ENOUGH,
    NO_LETTERS,
    FieldSample,
    Letters,
    counted,
    describe_fields,
    percent,
    used_paths,
    used_share,
)
from tokmill.rendering.renderer import make_renderer
from tokmill.rendering.where import make_filter
from tokmill.run.unmatched import unmatched_in_chats
from tokmill.settings.names import of_source
from tokmill.settings.schema import RenderSettings, UnclearNamesError
from tokmill.sources.blocks import value_at
from tokmill.sources.file_kinds import check_encoding, check_kind
from tokmill.sources.files import Discovery, discover
from tokmill.sources.first_records import first_block, first_of_file
from tokmill.sources.formats import format_named
from tokmill.values import WHOLE_RECORD
from tokmill.words import plural

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tokmill.settings.schema import Config
    from tokmill.settings.sft import SftSettings
    from tokmill.sources.slices import SourceFile
    from tokmill.tokenizer.tokenizer import Tokenizer

    _Folder = tuple[str, str]

MOST_OF_FOLDER, MOST_OF_FORMAT = 64, 1024
"""Files that are looked at, of a folder and format, and of all folders of a source together."""

_MOST_RECORDS, _LEAST_RECORDS = 100, 8
_MOST_BYTES, _LEAST_BYTES = 16 << 20, 16 << 10
"""What is read of one file, alone and among a thousand."""

_MOST_NAMED = 3
_MOST_ODD = 9
"""Files that an error names besides those of the first kind."""


class Input(NamedTuple):
    """The files of a source, with the settings of the run as this source has them."""

    name: str
    config: Config
    discovery: Discovery


@dataclass(slots=True)
class _FileGroup:
    """Files of one folder and format that are looked at together, as their records have equal keys.

    `files`: those that were looked at, in order. `fields`: of their first records. `records`: some
    of these records, for chats. `heads`: the letters of the first records of each file, where it
    may have sections. `settings`: how the records are read; None until that is resolved.
    """

    keys: frozenset[str]
    fields: FieldSample
    files: list[SourceFile] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    heads: dict[SourceFile, Letters] = field(default_factory=dict)
    settings: Any = None

    @property
    def folder(self) -> _Folder:
        """Return the folder and the format of the files."""
        return _folder_of(self.files[0])

    @property
    def n_records(self) -> int:
        """Return the number of records that were looked at."""
        return self.fields.n_records + len(self.records)


@dataclass(slots=True)
class FoundReading:
    """A reading, all its files in order, and the fields of the first records of some.

    `heads`: the letters at the head of each file that was looked at, where it may have sections.
    """

    reading: ReadingSettings
    files: list[SourceFile]
    fields: FieldSample
    heads: dict[SourceFile, Letters] = field(default_factory=dict)

    def in_words(self) -> str:
        """Return how the files are read: `text: content 97%; left out: title 3%`."""
        sft = self.reading.sft
        if sft is None:
            fields = self.fields_note()
            name = self.scripts_note() or self.settings_of(self.files[0]).renderer
            return name + (f": {fields}" if fields else "")
        settings = [("fields", sft.fields), ("roles", sft.role_names)]
        named = [f"{word} {', '.join(pairs)}" for word, pairs in settings if pairs]
        return "; ".join([f"schema {sft.schema}", *named])

    def settings_of(self, file: SourceFile) -> RenderSettings:
        """Return the settings of a file, as far as is known before the run: not `sections`."""
        render = self.reading.render
        if render.renderer_name != "sections":
            return render
        letters = self.heads.get(file, NO_LETTERS)
        return replace(render, renderer=sections_renderer(letters, render.unclear))

    def scripts_note(self) -> str:
        """Return the shares of the renderers of sections, in bytes of files; '' for less than two.

        A file that was not looked at counts as its source.
        """
        n_bytes: Counter[str] = Counter()
        for file in self.files:
            n_bytes[self.settings_of(file).renderer] += max(1, file.n_bytes)
        if len(n_bytes) < 2:
            return ""
        shares = [f"{name} {percent(n / n_bytes.total())}" for name, n in n_bytes.most_common()]
        return f"{', '.join(shares)} of the bytes, by the script of each file"

    def fields_note(self) -> str:
        """Return a line on the used and unused fields of the first records; '' for chats.

        If one field was detected and others have text, the line names the option to use all.
        """
        sample, render = self.fields, self.reading.render
        if self.reading.sft is not None or not sample.n_records:
            return ""
        schema = make_renderer(render).schema
        if WHOLE_RECORD in schema.names:
            return ""
        used = used_paths(schema)
        counts = counted(sample.weighed(render.text_field), used)
        is_one = render.renderer == "text" and not self.reading.is_named
        is_all = not is_one or used_share(counts, used) == 1
        option = "" if is_all else template_option(sample, render.text_field)
        return describe_fields(counts, used) + (f"; to take all: {option}" if option else "")


def inputs_of(config: Config, commits: Mapping[str, str] | None) -> list[Input]:
    """Find the files of each source; inputs without a source come first.

    A file of a source is no file of the inputs without one.

    Raises:
        UsageError: nothing is found, a file is of two sources, or a setting is of another recipe.
        StorageError: a file or directory cannot be read.
    """
    plain = replace(config, input=replace(config.input, sources=()))
    inputs = []
    owners: dict[str, str] = {}
    for source in config.input.sources:
        of_source = _config_of(plain, source.values())
        discovery = discover(of_source.input, commits)
        for file in discovery.files:
            owner = owners.setdefault(abspath(file.path), source.name)  # noqa: PTH100
            if owner != source.name:
                raise UsageError(
                    f"{file.path}: in two sources, {owner} and {source.name}: name it in one"
                )
        inputs.append(Input(source.name, of_source, discovery))
    if config.input.paths:
        discovery = discover(plain.input, commits)
        if owners:
            rest = [file for file in discovery.files if abspath(file.path) not in owners]  # noqa: PTH100
            discovery = discovery._replace(files=rest)
        inputs.insert(0, Input("", plain, discovery))
    return inputs


def _config_of(config: Config, values: dict[str, Any]) -> Config:
    """Return the settings of a run as a source has them."""
    name, paths = values.pop("name"), values.pop("paths")
    section = "render" if config.sft is None else "sft"
    by_section: dict[str, dict[str, Any]] = {"input": {}, section: {}}
    for key, value in values.items():
        home = next((heading for heading in by_section if key in of_source(heading)), None)
        if home is None:
            right, wrong = ("sft", "pretrain") if config.sft is None else ("pretrain", "sft")
            raise UsageError(
                f"source {name}: {key} is a setting of tokmill {right}, this is tokmill {wrong}"
            )
        by_section[home][key] = value
    try:
        return replace(
            config,
            input=replace(config.input, paths=paths, **by_section["input"]),
            **{section: replace(getattr(config, section), **by_section[section])},
        )
    except UsageError as error:
        raise UsageError(f"source {name}: {error}") from None


def find_readings(
    inputs: Sequence[Input], tokenizer: Tokenizer | None, bad: list[str] | None = None
) -> list[FoundReading]:
    """Return how the files of all inputs are read, each with its files.

    `tokenizer`: documents need none. `bad`: gets a line for each file that cannot be read, which is
    then left out; None: such a file is an error.

    Raises:
        UsageError, StorageError: a file is of another kind, or nothing fits the records of a group.
    """
    readings: list[FoundReading] = []
    for source in inputs:
        files, groups = source.discovery.files, _Groups(source, tokenizer, bad)
        groups.look_at(_spread(_of_each_folder(files), MOST_OF_FORMAT))
        check_encoding(files)
        if len({group.settings for group in groups.resolved}) > 1:
            groups.look_at(_of_each_folder(files))  # those not looked at may be of either kind
            kinds = {(group.folder, group.settings) for group in groups.resolved}
            n_kinds = Counter(folder for folder, _ in kinds)
            groups.look_at(file for file in files if n_kinds[_folder_of(file)] > 1)
        readings += groups.readings()
    return readings


class _Groups:
    """The groups of a source's files; `resolved`: those of which it is known how they are read."""

    def __init__(self, source: Input, tokenizer: Tokenizer | None, bad: list[str] | None) -> None:
        self._source, self._tokenizer, self._bad = source, tokenizer, bad
        self._groups: dict[tuple[_Folder, frozenset[str]], _FileGroup] = {}
        self._seen: set[SourceFile] = set()
        self._left_out: set[SourceFile] = set()
        self._not_seen = list(source.config.input.keep)  # fields without a value so far
        self.resolved: list[_FileGroup] = []

    def look_at(self, files: Iterable[SourceFile]) -> None:
        """Read the first records of files, and resolve the settings of all groups."""
        unseen = [file for file in files if file not in self._seen]
        n = max(1, len(unseen))
        limits = max(_LEAST_RECORDS, _MOST_RECORDS // n), max(_LEAST_BYTES, _MOST_BYTES // n)
        odd: list[_Odd] = []
        for file in unseen:
            self._seen.add(file)
            try:
                self._add(file, *limits)
            except (UsageError, StorageError) as error:
                odd.append(_Odd([file], error))
        self._leave_out(odd)
        self._leave_descriptions_out()
        self._resolve_all()

    def _leave_out(self, odd: Sequence[_Odd]) -> None:
        """Raise the first error, which names the files of all, or leave them out of the input."""
        if odd and self._bad is None:
            raise _error_of_all(odd)
        for files, error in odd:
            self._left_out.update(files)
            if self._bad is not None:
                self._bad.append(str(error))

    def _add(self, file: SourceFile, n_records: int, n_bytes: int) -> None:
        """Add the first records of a file to the group of its folder, format and keys."""
        config = self._source.config
        if config.input.keep and format_named(file.format).holds == "text":
            raise UsageError(
                f"{file.path}: plain text has no fields to keep: leave --keep out, or write the "
                "texts and their fields as JSON Lines"
            )
        if check_kind(file, config.input):
            return  # text of another encoding: see `check_encoding`
        nested = () if config.sft is not None else nested_keys(config.render)
        records = first_of_file(
            file, config.input, n_records, n_bytes, whole=config.sft is not None
        )
        keys = frozenset(chain.from_iterable(records))
        if not keys:
            return
        for path in [*self._not_seen]:
            if any(value_at(record, path) is not None for record in records):
                self._not_seen.remove(path)
        if config.sft is not None:
            from tokmill.chat.reading.detect import speakers_in

            keys |= {f"speaker {name}" for name in speakers_in(records)}
        key = _folder_of(file), keys
        group = self._groups.setdefault(key, _FileGroup(keys, FieldSample(nested)))
        group.files.append(file)
        group.fields.where = group.fields.where or file.path
        if config.sft is None:
            sample, used = FieldSample(nested), section_paths(config.render)
            for record in records:
                sample.add(record)
                if group.heads.get(file, NO_LETTERS).n < HEAD_LETTERS:
                    group.heads[file] = sample.letters(used)
            known_bytes = file.n_bytes or sample.n_bytes  # unknown: standard input, a stream
            sample.weigh_letters(known_bytes / max(1, sample.n_bytes))
            group.fields.merge(sample)
        else:
            group.records += records

    def _leave_descriptions_out(self) -> None:
        """Leave out a JSON file of one object that shares no key with the records of others.

        It describes the data, as metadata.json does; a file that is named is read.
        """
        paths = self._source.config.input.paths
        named = {*paths, *(PurePath(path).as_posix() for path in paths)}
        for key, group in list(self._groups.items()):
            others = [g for g in self._groups.values() if g is not group and g.n_records > 1]
            file = group.files[0]
            is_json = file.path.endswith(".json")
            if file.path in named or not is_json or group.n_records > 1 or not others:
                continue
            if group.keys.isdisjoint(chain.from_iterable(other.keys for other in others)):
                del self._groups[key]
                self._left_out.add(file)
                keys = ", ".join(islice(group.fields.keys or group.records[0], _MOST_NAMED))
                self._source.discovery.notes.append(
                    f"ignored: {file.path}: one object, with no key of the others ({keys}): "
                    "to read it, name it"
                )

    def _resolve(self, group: _FileGroup) -> RenderSettings | SftSettings:
        """Return the settings with which the records of a group are read, without `auto`.

        Raises:
            UsageError: no renderer or no schema fits.
        """
        paths = self._source.config.input.paths
        where = files_in_words(group.files) or ", ".join(paths)
        try:
            return self._resolve_text(group, where)
        except UsageError as error:
            if told := rows_of_ids(group.keys, group.files):
                raise UsageError(f"{where}: {told}") from error
            raise

    def _resolve_text(self, group: _FileGroup, where: str) -> RenderSettings | SftSettings:
        """Return what `_resolve` does; `where` names the files."""
        config = self._source.config
        if config.sft is None or self._tokenizer is None:
            render = detect(config.render, group.fields, where)
            make_renderer(render, group.fields)
            return render
        from tokmill.recipes.sft_setup import resolve_records

        try:
            return resolve_records(
                config.sft, self._tokenizer, group.records, f"first records of {where}"
            )
        except UsageError as error:
            if config.sft.schema == "auto" and (fields := _documents(group.records)):
                raise UsageError(
                    f"{where}: these are documents, not chats ({fields}): use tokmill pretrain"
                ) from error
            raise

    def _resolve_all(self) -> None:
        """Resolve the settings of each group; one without own settings takes others that fit."""
        self.resolved, failed = [], {}
        for key, group in self._groups.items():
            try:
                group.settings = self._resolve(group)
                self.resolved.append(group)
            except UsageError as error:
                failed[key] = error
        odd: list[_Odd] = []
        is_given = is_named(self._source.config.render)  # for every file of its source
        for key, problem in failed.items():
            group = self._groups[key]
            for settings in dict.fromkeys(other.settings for other in self.resolved):
                others = [other for other in self.resolved if other.settings == settings]
                if is_given or _fits(settings, group, others):
                    group.settings = settings
                    self.resolved.append(group)
                    break
            else:
                del self._groups[key]
                odd.append(_Odd(group.files, self._explained(problem, group)))
        self._leave_out(odd)

    def _explained(self, problem: UsageError, group: _FileGroup) -> UsageError:
        """Return an error whose advice holds for the files of a group alone, if there are others.

        An option of the command would change how all files are read.
        """
        n_files = len(group.files)
        is_all = self._source.name or n_files == len(self._source.discovery.files)
        if is_all or not (isinstance(problem, UnclearNamesError) and problem.table):
            return problem
        return UsageError(f"{problem.about}{_own_source(group.files, problem.table)}")

    def _decide_sections(self) -> None:
        """Take a renderer for files of no clear script, by that of all files with sections."""
        config = self._source.config
        if config.sft is not None:
            return
        both = [group for group in self.resolved if group.settings.renderer == "sections"]
        unclear = sampled_renderer(config.render, [group.fields for group in both])
        for group in both:
            group.settings = replace(group.settings, renderer=f"sections:unclear={unclear}")

    def _look_for_flags(self) -> None:
        """Refuse flags of chats that may say what is trained, and warn of others.

        Raises:
            UsageError: nothing reads such a flag.
        """
        if self._source.config.sft is None:
            return
        from tokmill.chat.reading.flags import check_flags, flag_note

        for group in self.resolved:
            where = files_in_words(group.files)
            check_flags(group.records, group.settings, f"first records of {where}")
            if note := flag_note(group.records, group.settings):
                self._source.discovery.warnings.append(f"{where}: {note}")

    def readings(self) -> list[FoundReading]:
        """Return the readings, each with its files, in the order of their first files."""
        self._decide_sections()
        self._look_for_flags()
        if self._not_seen and self.resolved:
            keys = ", ".join(self.resolved[0].fields.keys or self.resolved[0].records[0])
            self._source.discovery.unmatched.append(
                f"--keep={','.join(self._not_seen)}: the first records have no value there; their "
                f"keys are {keys}"
            )
        sft, records = self._source.config.sft, [r for g in self.resolved for r in g.records]
        if sft is not None and records:
            self._source.discovery.unmatched.extend(unmatched_in_chats(sft, records))
        of_file: dict[SourceFile, Any] = {}
        of_folder: dict[_Folder, Any] = {}
        for group in self.resolved:
            of_file |= dict.fromkeys(group.files, group.settings)
            of_folder.setdefault(group.folder, group.settings)
        if of_file:
            common = Counter(of_file.values()).most_common(1)[0][0]
        else:  # no file has a record
            common = self._resolve(_FileGroup(frozenset(), FieldSample()))
        files: dict[Any, list[SourceFile]] = {}
        for file in self._source.discovery.files:
            if file not in self._left_out:
                settings = of_file.get(file) or of_folder.get(_folder_of(file), common)
                files.setdefault(settings, []).append(file)
        return [self._reading(settings, members) for settings, members in files.items()]

    def _reading(self, settings: Any, files: list[SourceFile]) -> FoundReading:
        config, fields = self._source.config, FieldSample()
        heads: dict[SourceFile, Letters] = {}
        for group in self.resolved:
            if group.settings == settings:
                fields.merge(group.fields)
                heads |= group.heads
        is_render = isinstance(settings, RenderSettings)
        label = files_in_words(files)
        reading = ReadingSettings(
            self._source.name,
            label,
            config.input,
            settings if is_render else config.render,
            None if is_render else settings,
            is_named(config.render) if is_render else True,
            fields.labels(settings.text_field) if is_render else frozenset(),
        )
        return FoundReading(reading, files, fields, heads)


class _Odd(NamedTuple):
    """Files that cannot be read, and why."""

    files: Sequence[SourceFile]
    error: UsageError | StorageError


def _error_of_all(odd: Sequence[_Odd]) -> UsageError | StorageError:
    """Return the first error; it names the files of the others too."""
    error = odd[0].error
    others = [file.path for files, _ in odd[1:] for file in files]
    is_of_setting = isinstance(error, UsageError) and error.setting
    if not others or is_of_setting:
        return error
    shown = ", ".join(others[:_MOST_ODD])
    if len(others) > _MOST_ODD:
        shown += f" and {plural(len(others) - _MOST_ODD, 'other file')}"
    kind = UsageError if isinstance(error, UsageError) else StorageError
    return kind(f"{error} (not read either: {shown})")


def _own_source(files: Sequence[SourceFile], table: str) -> str:
    """Return advice to read files by settings of their own: a table of TOML."""
    n_files = len(files)
    paths = [json.dumps(file.path, ensure_ascii=False) for file in files[:_MOST_NAMED]]
    table = f"paths = [{', '.join(paths)}{', …' * (n_files > _MOST_NAMED)}], {table}"
    these = "this file a source of its" if n_files == 1 else "these files a source of their"
    return f"give {these} own: --source={shlex.quote(table)}"


def _documents(records: Sequence[Mapping[str, Any]]) -> str:
    """Return the fields of records with sections, which are no chats; '' for others."""
    sample = FieldSample()
    for record in records:
        sample.add(record)
    try:
        settings = detect(RenderSettings(), sample, "")
    except UsageError:
        return ""
    has_sections = settings.renderer == "sections" and sample.n_records
    return ", ".join(sample.keys) if has_sections else ""


_KINDS_OF_ROWS = {
    "jsonl": "jsonl",
    "array": "jsonl",
    "object": "jsonl",
    "arrow": "datasets",
    "hub": "datasets",
    "parquet": "parquet",
}
"""What `tokmill import --from` calls the rows of a format; it reads no others."""


def rows_of_ids(keys: Collection[str], files: Sequence[SourceFile]) -> str:
    """Return that records without text hold ids, and what reads them; '' for others."""
    from tokmill.recipes.row_columns import NAMES_OF_IDS

    ids = [name for name in NAMES_OF_IDS if name in keys]
    if not ids or not files:
        return ""
    kind = _KINDS_OF_ROWS.get(files[0].format)
    if kind is None:
        return ""
    return f"rows of ids ({', '.join(ids)}), not text: tokmill import --from {kind} reads them"


def first_document(group: FoundReading) -> str:
    """Return the document of the first record that has one, '' if the first block has none."""
    if group.reading.sft is not None:
        return ""
    renderer = make_renderer(group.reading.render)
    keep = make_filter(group.reading.input)
    for file in group.files[:_MOST_NAMED]:
        records = first_block(file, group.reading.input, renderer.schema)
        if records is not None and keep is not None:
            records = keep(records).records
        if records is not None and len(texts := renderer.render(records).text):
            return str(texts[0].as_py())
    return ""


def _fits(settings: Any, group: _FileGroup, others: Sequence[_FileGroup]) -> bool:
    """Return whether the settings of other groups of a folder read nearly all text of this one.

    Its first records may be few, with labels that look like text: they count with those of its
    folder, unless it has text in fields that the others do not have.
    """
    near = [other for other in others if other.folder == group.folder]
    if not isinstance(settings, RenderSettings) or not near:
        return False
    merged = FieldSample()
    for other in near:
        merged.merge(other.fields)
    known = {path for path, n in merged.weighed(settings.text_field).items() if n.text_bytes}
    own = {path for path, n in group.fields.weighed(settings.text_field).items() if n.text_bytes}
    merged.merge(group.fields)
    used = used_paths(make_renderer(settings).schema)
    return own <= known and share(merged.weighed(settings.text_field), used) >= ENOUGH


def _of_each_folder(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return files of each folder and format, evenly spread."""
    by_folder: dict[_Folder, list[SourceFile]] = {}
    for file in files:
        if file.n_bytes or file.is_stream:
            by_folder.setdefault(_folder_of(file), []).append(file)
    return [file for of_folder in by_folder.values() for file in _spread(of_folder, MOST_OF_FOLDER)]


def _spread(files: list[SourceFile], most: int) -> list[SourceFile]:
    if len(files) <= most:
        return files
    return [files[i * len(files) // most] for i in range(most)]


def _folder_of(file: SourceFile) -> _Folder:
    """Return the folder and the format of a file."""
    return file.path.rpartition("/")[0], file.format


def files_in_words(files: Sequence[SourceFile]) -> str:
    """Return files as a person names them: `wiki/*.jsonl (12 files), c4/*.parquet (3 files)`."""
    words: list[str] = []
    rest = 0
    for pattern, members in groupby([file.path for file in files], _pattern):
        paths = list(members)
        if len(words) == _MOST_NAMED:
            rest += len(paths)
        else:
            words.append(
                paths[0] if len(paths) == 1 else f"{pattern} ({plural(len(paths), 'file')})"
            )
    return ", ".join(words) + (f" and {plural(rest, 'other file')}" if rest else "")


def _pattern(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    endings = name.split(".")[1:]
    n_kept = 2 if endings[-1:] in (["gz"], ["gzip"], ["zst"], ["zstd"]) else 1
    return f"{folder}{slash}" + ".".join(["*", *endings[-n_kept:]])
