"""What the page says of the dataset itself: its head, and sections from its manifest and tokens."""

from __future__ import annotations

import base64
import json
import shlex
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import DATASET_FILE, REJECTS
from tokmill.errors import TokmillError
from tokmill.inspect.by_field import counts_by_field, most_frequent
from tokmill.inspect.samples import statistics_of
from tokmill.inspect.statistics import CONTEXTS, Lengths, Statistics, read_lengths
from tokmill.inspect.summary import (
    STAGES,
    detail_rows,
    engine_line,
    lengths_text,
    quoted,
    share_of,
    stage_times,
    statistics_rows,
    things_of,
)
from tokmill.page.markup import (
    LONGEST_NAME,
    Bar,
    Number,
    Section,
    content,
    details,
    exact,
    facts,
    histogram,
    keys,
    label,
    note,
    panel,
    panels,
    shortened,
    table,
    tiles,
)
from tokmill.settings.names import find_setting, not_default
from tokmill.urls import shown_place, store_url
from tokmill.words import count, counted, memory, plural, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tokmill.dataset.counts import Counts
    from tokmill.dataset.manifest import Manifest, MixSource, SourceEntry, Usage
    from tokmill.inspect.summary import Rows
    from tokmill.page.markup import Cell

MOST_TOKENS = 1 << 30
"""Tokens that are read for a page, which takes 5 to 10 s, or 50 if documents have 40 tokens each;
of more, the section names the command."""
MOST_SOURCES, _FIRST_ROWS = 20, 6
"""Sources with a row, and rows that are shown before the others are opened."""
_MOST_REASONS, _MOST_EXAMPLES, _RAW_CHARACTERS = 40, 24, 300
_MOST_READ = 20_000
"""Entries of the files of rejects that are read for examples, a few kB each."""
_MOST_TICKS, _MOST_ITEMS, _LONGEST_VALUE = 16, 20, 300


def head_tiles(manifest: Manifest, n_bytes: int) -> str:
    """Return the most important numbers of a dataset as HTML; `n_bytes`: its size on disk."""
    totals = manifest.totals
    tokens, text_bytes = totals.tokens, totals.text_bytes  # 0: an import does not know it
    of_val = manifest.of_split("val")
    n_val = sum(shard.tokens for shard in of_val)
    rows: list[tuple[str, str | Number, str]] = [
        ("tokens", Number(count(tokens), tokens), _exactly(tokens, n_val)),
        (
            things_of(manifest),
            Number(count(totals.documents), totals.documents),
            _exactly(totals.documents, sum(shard.documents for shard in of_val)),
        ),
        ("sources", f"{_n_sources(manifest):,}", plural(len(manifest.input_files), "file")),
    ]
    if manifest.is_sft:
        trained = totals.trained_tokens
        rows.append(("trained tokens", share_of(trained, tokens), f"{trained:,}"))
    stored = f"{manifest.dtype}, {np.dtype(manifest.dtype).itemsize} bytes a token"
    rows.append(("size on disk", Number(size(n_bytes), n_bytes), stored))
    if text_bytes:
        density = f"{text_bytes / max(1, tokens):.2f}"
        rows.append(("text bytes per token", density, f"{size(text_bytes)} of text"))
    drops, rejects = totals.drops.total(), totals.rejects.total()
    lost = share_of(drops + rejects, totals.records) if drops + rejects else "none"
    rows.append(("left out", lost, f"{plural(drops, 'drop')}, {plural(rejects, 'reject')}"))
    return tiles(rows)


def _n_sources(manifest: Manifest) -> int:
    return len({file.name or file.path for file in manifest.input_files})


def _exactly(total: int, val: int) -> str:
    """Return a total to the last digit if its tile rounds it, and how much of it is in val."""
    digits = f"{total:,}; " if count(total) != f"{total:,}" else ""
    return digits + (f"{val:,} in val" if val else "none in val")


def head_facts(directory: Path, manifest: Manifest) -> Rows:
    """Return where the dataset is, and how its ids were made."""
    told = dict(detail_rows(manifest, shown_place(directory)))
    engine = manifest.engine
    return [
        ("directory", shown_place(directory if store_url(directory) else directory.resolve())),
        ("tokenizer", told["tokenizer"]),
        ("engine", engine_line(engine, manifest.totals.checks)),
    ]


def to_look_at(manifest: Manifest, statistics: Statistics | str) -> list[str]:
    """Return what may be wrong with the data, most of which nothing else would show."""
    told = dict(detail_rows(manifest, ""))
    found = [told["unread"]] if "unread" in told else []
    if told.get("fields", "").startswith("only"):
        found.append(told["fields"])
    if not isinstance(statistics, str) and (n := statistics.duplicates.in_both_splits):
        found.append(f"{plural(n, things_of(manifest)[:-1])} of val also in train")
    return found


def lengths_section(directory: Path, manifest: Manifest) -> Section:
    """Return the section, or why nobody knows the lengths."""
    try:
        found = read_lengths(directory, manifest)
    except TokmillError as error:
        return Section("lengths", "Lengths", note(f"The lengths are not known: {error}"))
    if not len(found.values):
        return Section("lengths", "Lengths", note("There are no documents."))
    things = things_of(manifest)
    charts = panels(_histogram(found, things), _contexts(found, manifest.totals, things))
    return Section("lengths", "Lengths", note(lengths_text(found)) + charts)


def _histogram(found: Lengths, things: str) -> str:
    documents, tokens = found.documents.tolist(), found.tokens.tolist()
    filled = [i for i, n in enumerate(documents) if n]
    bins = range(filled[0], filled[-1] + 1)
    columns = {
        f"{1 << i:,} to {plural((2 << i) - 1, 'token')}": (exact(documents[i]), exact(tokens[i]))
        for i in bins
    }
    rows = [(name, *numbers) for name, numbers in columns.items()]
    every = 1 if len(bins) <= _MOST_TICKS else 2
    ticks = [_short(1 << i) if (i - bins.start) % every == 0 else "" for i in bins]
    marked = [context.bit_length() - 1 - bins.start for context in CONTEXTS]
    names = (things, "tokens")
    return panel(
        f"{things.capitalize()} by length in tokens",
        keys([f"share of all {name}" for name in names],
             '<li><b class="mark"></b>context sizes</li>'),
        histogram(names, columns, ticks, marked),
        details("Numbers", table("Lengths", ("length", *names), rows)),
    )  # fmt: skip


def _short(n: int) -> str:
    """Return a power of two as people name context sizes: `512`, `4k`, `1M`."""
    if n < 1 << 10:
        return str(n)
    return f"{n >> 10}k" if n < 1 << 20 else f"{n >> 20}M"


def _contexts(found: Lengths, totals: Counts, things: str) -> str:
    """Return how much is longer than each context size, up to the first that nothing exceeds."""
    n_documents, n_tokens = totals.documents, totals.tokens
    n_passed = sum(1 for context in CONTEXTS if found.longer(context))
    rows: list[tuple[Cell, ...]] = []
    for context in CONTEXTS[: n_passed + 1]:
        longer, beyond = found.longer(context), found.beyond(context)
        rows.append((
            f"{context:,}",
            Bar((longer,), n_documents), exact(longer), _share(longer, n_documents),
            Bar((beyond,), n_tokens, 2), _share(beyond, n_tokens),
        ))  # fmt: skip
    head = ("context", "", f"longer {things}", "", "", "tokens past it")
    return panel("Longer than a context", table("Longer than a context", head, rows))


def _share(n: float, total: float) -> Number:
    return Number(share_of(n, total), n / (total or 1))


def sources_section(manifest: Manifest) -> Section:
    """Return the sources with most tokens, the others as one, and what each gave to a mix."""
    rows, folder = grouped(manifest.sources)
    lead = plural(_n_sources(manifest), "source") + (
        f" in {shortened(folder, 100)}" if folder else ""
    )
    if _n_sources(manifest) > len(rows):
        lead += f"; the {MOST_SOURCES} with most tokens are shown, the others as one"
    html = note(f"{lead}.") + _sources_table(manifest, rows)
    return Section("sources", "Sources", html + _mix(manifest.mix.sources if manifest.mix else ()))


def _sources_table(manifest: Manifest, rows: Sequence[SourceGroup]) -> str:
    totals, things = manifest.totals, things_of(manifest)
    full = max((row.tokens for row in rows), default=1)
    is_sft = manifest.is_sft

    def density(row: SourceGroup) -> Cell:
        if is_sft:
            return _share(row.trained_tokens, row.tokens)
        known = row.tokens and totals.text_bytes  # an import does not know its text
        value = row.text_bytes / row.tokens if known else 0
        return Number(f"{value:.2f}", value) if known else ""

    lines: list[tuple[Cell, ...]] = [
        (
            row.name,
            Bar((row.tokens,), full), exact(row.tokens),
            _share(row.tokens, totals.tokens),
            exact(row.documents), density(row), exact(row.left_out),
        )
        for row in rows
    ]  # fmt: skip
    last = "trained" if is_sft else "bytes per token"
    head = ("source", "", "tokens", "", things, last, "left out")
    return table("Sources", head, lines, first=_FIRST_ROWS)


def field_section(directory: Path, manifest: Manifest, field: str) -> Section | None:
    """Return documents and tokens by the values of a kept field; None if no field is named.

    Raises:
        TokmillError: see `counts_by_field`.
    """
    if not field:
        return None
    counts, totals = counts_by_field(directory, manifest, field), manifest.totals
    full = max((row["tokens"] for row in counts), default=1)
    lines: list[tuple[Cell, ...]] = [
        (
            shortened(row["value"], LONGEST_NAME),
            Bar((row["tokens"],), full),
            exact(row["tokens"]),
            _share(row["tokens"], totals.tokens),
            exact(row["documents"]),
        )
        for row in most_frequent(counts, MOST_SOURCES)
    ]
    head = (field, "", "tokens", "", things_of(manifest))
    return Section("by-field", f"By {field}", table(f"By {field}", head, lines, first=_FIRST_ROWS))


@dataclass(frozen=True)
class SourceGroup:
    """What input files of one source, or several small sources, hold together.

    `left_out`: their drops and rejects.
    """

    name: str
    documents: int
    tokens: int
    text_bytes: int
    trained_tokens: int
    left_out: int

    @classmethod
    def of(cls, name: str, counts: Iterable[Counts]) -> SourceGroup:
        """Return the sums of counts."""
        every = list(counts)
        return cls(
            shortened(name, LONGEST_NAME),
            sum(one.documents for one in every),
            sum(one.tokens for one in every),
            sum(one.text_bytes for one in every),
            sum(one.trained_tokens for one in every),
            sum(one.drops.total() + one.rejects.total() for one in every),
        )


def grouped(sources: Sequence[SourceEntry]) -> tuple[list[SourceGroup], str]:
    """Return the sources, those with most tokens first, and the folder of their files.

    A source without a name is a file, named without that folder. Sources after the first
    `MOST_SOURCES` are summed up in one group.
    """
    folder = _common_folder([one.path for one in sources if not one.name])
    named: dict[str, list[Counts]] = {}
    for one in sources:
        named.setdefault(one.name or one.path[len(folder) :], []).append(one.counts)
    names = sorted(named, key=lambda name: (-sum(one.tokens for one in named[name]), name))
    first, others = names, []
    if len(names) > MOST_SOURCES + 1:
        first, others = names[:MOST_SOURCES], names[MOST_SOURCES:]
    groups = [SourceGroup.of(name, named[name]) for name in first]
    if others:
        rest = chain.from_iterable(named[name] for name in others)
        groups.append(SourceGroup.of(plural(len(others), "other source"), rest))
    return groups, folder


def _common_folder(paths: Sequence[str]) -> str:
    """Return the folder of all paths with its slash; '' if they have none."""
    first, last = min(paths, default=""), max(paths, default="")
    n_same = next((i for i, c in enumerate(first) if last[i] != c), len(first))
    return first[: first.rfind("/", 0, n_same) + 1]


def _mix(sources: Sequence[MixSource]) -> str:
    """Return what each source gave to train of a mix; '' for no mix."""
    rows: list[tuple[Cell, ...]] = [
        (
            source.name,
            *map(exact, (source.wanted, source.tokens, source.documents)),
            Number(f"{source.epochs:.4g}", source.epochs),
        )
        for source in sources
    ]
    title = "What each source of the mix gave to train"
    head = ("source", "wanted tokens", "tokens", "documents", "epochs")
    return panels(panel(title, table(title, head, rows, first=_FIRST_ROWS))) if rows else ""


def statistics_for(directory: Path, manifest: Manifest, tokenizer: str) -> Statistics | str:
    """Return the statistics of `tokmill stats`, or why the page has none."""
    n_tokens = manifest.totals.tokens
    if n_tokens > MOST_TOKENS:
        command = f"tokmill stats {shlex.quote(shown_place(directory))}"
        return f"Not counted for a page: {command} reads {plural(n_tokens, 'token')}."
    try:
        return statistics_of(directory, manifest, tokenizer)
    except TokmillError as error:
        return f"Not counted: {error}"


def training_section(manifest: Manifest, of_ranks: Rows | None) -> Section | None:
    """Return which tokens of SFT are trained, and how full packed rows are; None for neither.

    `of_ranks`: how even their batches are, in words.
    """
    rows = detail_rows(manifest, "")
    named = ("trained tokens", "warning", "mask", "noticed")
    mask = [row for row in rows if row[0] in named and manifest.is_sft]
    packs = [row for row in rows if row[0].startswith("packs, ")]
    parts = [("Trained tokens", mask), ("Packed rows", packs), ("Ranks", of_ranks or [])]
    html = [panel(title, facts(own, is_brief=True)) for title, own in parts if own]
    return Section("training", "Training", panels(*html)) if html else None


def _duplicates(statistics: Statistics | str, n_tokens: int) -> str:
    if isinstance(statistics, str):
        return note(statistics)
    rows: list[tuple[Cell, ...]] = [
        (f"{named.id} {quoted(named.text)}", exact(named.count), _share(named.count, n_tokens))
        for named in statistics.frequent
    ]
    frequent = table("Most frequent ids", ("id", "times", "share"), rows)
    told = [row for row in statistics_rows(statistics) if row[0] != "lengths"]
    return facts(told, is_brief=True) + details("Frequent ids", frequent)


def losses_section(directory: Path, manifest: Manifest, statistics: Statistics | str) -> Section:
    """Return drops and rejects by reason, what was not read, and equal documents."""
    totals = manifest.totals
    records = plural(totals.records, "record")
    told = [row for row in detail_rows(manifest, "") if row[1] != "none"]
    examples = reject_examples(directory, manifest)
    kept = ", kept in the folder rejects" if examples else ""
    if rows := _reasons(totals):
        drops, rejects = totals.drops.total(), totals.rejects.total()
        lead = f"{plural(drops, 'drop')} and {plural(rejects, 'reject')} of {records}."
        about = "A drop is left out by a setting; a reject is a broken record"
        head = ("reason", "", "", "records", "")
        parts = [table("Left out", head, rows, first=_FIRST_ROWS), note(f"{lead} {about}{kept}.")]
    else:
        parts = [note(f"None of {records} was dropped or rejected.")]
    if examples:
        cards = f'<div class="cards">{"".join(map(_example, examples))}</div>'
        parts.append(details(counted(len(examples), "examples of rejects"), cards))
    if totals.lost_tokens:
        parts.append(facts([row for row in told if row[0] == "drops"], is_brief=True))
    others = panel("Duplicates and ids", _duplicates(statistics, totals.tokens))
    if read := [row for row in told if row[0] in ("unread", "unread keys", "fields")]:
        others += panel("Fields and keys", facts(read, is_brief=True))
    html = panels(panel("Drops and rejects", *parts), f"<div>{others}</div>")
    return Section("losses", "Drops, rejects, duplicates", html)


def _reasons(totals: Counts) -> list[tuple[Cell, ...]]:
    """Return a row for each reason of drops and rejects, the most frequent first."""
    found = [(n, "drop", reason) for reason, n in totals.drops.items()]
    found += [(n, "reject", reason) for reason, n in totals.rejects.items()]
    found.sort(key=lambda row: (-row[0], row[2]))
    if others := found[_MOST_REASONS:]:
        n_others = sum(n for n, _, _ in others)
        found[_MOST_REASONS:] = [(n_others, "", plural(len(others), "other reason"))]
    full = max((n for n, _, _ in found), default=1)
    tones = {"drop": 3, "reject": 7, "": 2}
    return [
        (reason, kind, Bar((n,), full, tones[kind]), exact(n),
         _share(n, totals.records))
        for n, kind, reason in found
    ]  # fmt: skip


def reject_examples(directory: Path, manifest: Manifest) -> list[Mapping[str, Any]]:
    """Return two rejects of each reason, the most frequent first, of files in the manifest."""
    from tokmill.dataset.writer import read_rejects

    counts: Mapping[str, int] = manifest.totals.rejects
    names = [entry.name for entry in manifest.files if counts]
    paths = [
        directory / name
        for name in names
        if name.startswith(f"{REJECTS}/") and DATASET_FILE.fullmatch(name)
    ]
    missing = {reason: min(n, 2) for reason, n in counts.items()}
    found = []
    for entry in islice(read_rejects(paths), _MOST_READ):
        reason = str(entry.get("reason", "")) if isinstance(entry, dict) else ""
        if missing.get(reason):
            missing[reason] -= 1
            found.append(entry)
        if not any(missing.values()):
            break
    found.sort(key=lambda entry: (-counts[entry["reason"]], entry["reason"]))
    return found[:_MOST_EXAMPLES]


def _example(entry: Mapping[str, Any]) -> str:
    place = f"{entry.get('source', '')}:{entry.get('line', '')}"
    raw = _raw(entry)
    cut = "…" if len(raw) > _RAW_CHARACTERS else ""
    return (
        f"<article><header><h3>{label(str(entry.get('reason', '')), LONGEST_NAME)}</h3>"
        f'<ul class="about"><li>{label(place, 160)}</li></ul></header>'
        f'<p class="remark">{label(str(entry.get("message", "")), 300)}</p>'
        f'<pre dir="auto">{content(raw[:_RAW_CHARACTERS])}{cut}</pre></article>'
    )


def _raw(entry: Mapping[str, Any]) -> str:
    """Return the beginning of a record; bytes that are not UTF-8 are surrogates."""
    if "raw" in entry:
        return str(entry["raw"])
    try:
        data = base64.b64decode(str(entry.get("raw_base64", "")))
    except ValueError:
        return ""
    return data.decode("utf-8", "surrogateescape")


def run_section(manifest: Manifest) -> Section:
    """Return the time of the run by stage, its settings, the check of its ids, and its files."""
    told = dict(detail_rows(manifest, ""))
    config = manifest.plain["config"]
    changed = "".join(
        f"<li><code>{label(option)}</code> {label(value)}</li>"
        for option, value in _options(not_default(config, config))
    )
    settings = panel(
        "Settings that are not the default",
        f'<ul class="options">{changed}</ul>',
        details("All settings", table("All settings", ("option", "value"), _options(config))),
        details("Check of the ids", facts([("engine", told["engine"])])),
        details("Files and checksums", facts(_files(manifest))),
    )
    time = panel("Time", facts([("elapsed", told["time"])]), _stages(manifest.run))
    return Section("run", "Run", panels(time, settings))


def _stages(run: Usage) -> str:
    """Return the seconds of stages, in the order of a record's way; they add up to the total."""
    times = {stage: s for stage, s in stage_times(run).items() if s}
    if not times:
        return ""
    total = sum(times.values())
    large = {stage: s for stage, s in times.items() if s >= total / 100}
    if rest := total - sum(large.values()):
        large[plural(len(times) - len(large), "other stage")] = rest
    rows: list[tuple[Cell, ...]] = [
        (stage, Bar((s,), max(large.values()), 2), Number(f"{s:,.2f}", s), _share(s, total))
        for stage, s in large.items()
    ]
    rows.append(("all threads", "", Number(f"{total:,.2f}", round(total, 2)), ""))
    meaning = [(stage, f"{s:,.2f} s: {STAGES.get(stage, '')}") for stage, s in times.items()]
    every = note("Stages overlap, and are summed over all threads.") + facts(meaning)
    return table("Seconds by stage", ("stage", "", "seconds", ""), rows, total=True) + details(
        "All stages", every
    )


def _files(manifest: Manifest) -> Rows:
    files = manifest.files
    algorithms = {entry.algorithm for entry in files}
    return [
        ("files", f"{plural(len(files), 'file')} beside manifest.json"),
        ("format version", str(manifest.format_version)),
        ("made with", f"tokmill {manifest.tokmill_version}"),
        ("checksums", f"{', '.join(sorted(algorithms))}; compared by tokmill verify"),
        ("manifest sha256", manifest.sha256),
        ("identity of the tokenizer", manifest.tokenizer.identity),
    ]


def _options(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield settings as they are typed, `--val-fraction`; those that are no option by their key."""
    for section, values in config.items():
        for name, value in values.items() if isinstance(values, dict) else ():
            key, text = f"{section}.{name}", _value(value)
            setting = find_setting(key)
            if setting is not None and not setting.metadata.get("is_hidden"):
                key = "INPUT" if key == "input.paths" else setting.option
            if setting is not None and setting.metadata.get("unit") == "bytes" and value:
                text += f" ({memory(value)})"
            yield key, shortened(text, _LONGEST_VALUE)


def _value(value: Any) -> str:
    if isinstance(value, list):
        more = [f"… {len(value) - _MOST_ITEMS:,} more"] if len(value) > _MOST_ITEMS else []
        return ", ".join([*map(_value, value[:_MOST_ITEMS]), *more])
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
