"""What the page says of the dataset itself: its head, and sections from its manifest and tokens."""

from __future__ import annotations

import base64
import binascii
import json
import shlex
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from tokmill.dataset.layout import DATASET_FILE, REJECTS
from tokmill.dataset.statistics import CONTEXTS, N_BINS, Lengths, Statistics, read_lengths
from tokmill.dataset.writer import read_rejects
from tokmill.errors import TokmillError
from tokmill.fields import percent
from tokmill.page.markup import (
    LONGEST_NAME,
    Bar,
    Column,
    Number,
    Said,
    Section,
    brief_facts,
    content,
    details,
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
from tokmill.page.samples import statistics_of
from tokmill.page.summary import (
    STAGES,
    detail_rows,
    engine_line,
    lengths_text,
    quoted,
    stage_times,
    statistics_rows,
    things_of,
)
from tokmill.settings.names import find_setting, not_default
from tokmill.words import count, counted, memory, plural, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tokmill.page.markup import Cell
    from tokmill.page.summary import Rows

MOST_TOKENS = 1 << 30
"""Tokens that are read for a page, which takes 5 to 10 s, or 50 if documents have 40 tokens each;
of more, the section names the command."""
MOST_SOURCES, _FIRST_ROWS = 20, 6
"""Sources with a row, and rows that are shown before the others are opened."""
_SUMMED = ("records", "documents", "tokens", "text_bytes", "trained_tokens")
_MOST_REASONS, _MOST_READ = 8, 20_000
"""Reasons with a row of their own; entries of the files of rejects that are read, a few kB each."""
_EXAMPLES_OF_REASON, _MOST_EXAMPLES, _RAW_CHARACTERS = 2, 8, 300
_MOST_TICKS, _MOST_ITEMS, _LONGEST_VALUE = 16, 20, 300


def head_tiles(manifest: Mapping[str, Any], n_bytes: int) -> str:
    """Return the most important numbers of a dataset as HTML; `n_bytes`: its size on disk."""
    totals, is_sft = manifest["totals"], manifest.get("kind") == "sft"
    tokens, text_bytes = totals["tokens"], totals["text_bytes"]  # 0: an import does not know it
    trained = totals.get("trained_tokens", 0)
    drops, rejects = (sum(totals[kind].values()) for kind in ("drops", "rejects"))
    lost = (drops + rejects) / max(1, totals["documents"] + drops + rejects)
    stored = f"{manifest['dtype']}, {np.dtype(manifest['dtype']).itemsize} bytes a token"
    left_out = f"{plural(drops, 'drop')}, {plural(rejects, 'reject')}"
    files = plural(len(manifest["sources"]), "file")
    trained_share = ("trained tokens", f"{trained / max(1, tokens):.1%}", f"{trained:,}")
    density = f"{text_bytes / max(1, tokens):.2f}", f"{size(text_bytes)} of text"
    return tiles([
        ("tokens", _counted(tokens), _exactly(manifest, "tokens")),
        (things_of(manifest), _counted(totals["documents"]), _exactly(manifest, "documents")),
        ("sources", f"{_n_sources(manifest):,}", files),
        *([trained_share] if is_sft else []),
        ("size on disk", Number(size(n_bytes), n_bytes), stored),
        *([("text bytes per token", *density)] if text_bytes else []),
        ("left out", f"{lost:.2%}" if lost else "none", left_out),
    ])  # fmt: skip


def _n_sources(manifest: Mapping[str, Any]) -> int:
    return len({one.get("name") or one["path"] for one in manifest["sources"]})


def _counted(n: int) -> Number:
    return Number(count(n), n)


def _exactly(manifest: Mapping[str, Any], key: str) -> str:
    """Return a total to the last digit if its tile rounds it, and how much of it is in val."""
    total = manifest["totals"][key]
    val = sum(shard[key] for shard in manifest["shards"] if shard["split"] == "val")
    exact = [f"{total:,}"] if count(total) != f"{total:,}" else []
    return "; ".join([*exact, f"{val:,} in val" if val else "none in val"])


def head_facts(directory: Path, manifest: Mapping[str, Any]) -> Rows:
    """Return where the dataset is, and how its ids were made."""
    told = dict(detail_rows(manifest, str(directory)))
    engine = manifest["engine"]
    return [
        ("directory", str(directory.resolve())),
        ("tokenizer", told["tokenizer"]),
        ("engine", engine_line(engine, manifest["totals"].get("checks"))),
    ]


def to_look_at(manifest: Mapping[str, Any], statistics: Statistics | str) -> list[str]:
    """Return what may be wrong with the data, most of which nothing else would show."""
    told = dict(detail_rows(manifest, ""))
    found = [told["unread"]] if "unread" in told else []
    if told.get("fields", "").startswith("only"):
        found.append(told["fields"])
    if not isinstance(statistics, str) and (n := statistics.duplicates.in_both_splits):
        found.append(f"{plural(n, things_of(manifest)[:-1])} of val also in train")
    return found


def lengths_section(directory: Path, manifest: Mapping[str, Any]) -> Section:
    """Return the section; without readable indices, it has the histogram of the manifest."""
    things = things_of(manifest)
    try:
        found, problem = read_lengths(directory, manifest), ""
    except TokmillError as error:
        counts = np.array(manifest["length_histogram"][:N_BINS], np.int64)
        found = Lengths(1 << np.arange(len(counts)), counts)  # each as the least of its column
        problem = f"The exact lengths are not known: {error}"
    html = [_histogram(found, things, is_exact=not problem)]
    if not problem:
        html.append(_contexts(found, manifest["totals"], things))
    lead = note(problem or lengths_text(found)) if len(found.values) else ""
    return Section("lengths", "Lengths", f"{lead}{panels(*html)}")


def _histogram(found: Lengths, things: str, *, is_exact: bool) -> str:
    filled = np.flatnonzero(found.documents)
    if not len(filled):
        return ""
    first, stop = int(filled[0]), int(filled[-1]) + 1
    names = (things, "tokens") if is_exact else (things,)
    amounts = (found.documents, found.tokens)[: len(names)]
    every = 1 if stop - first <= _MOST_TICKS else 2
    marked = [context.bit_length() - 1 for context in CONTEXTS]
    columns = [
        Column(
            f"{1 << i:,} to {(2 << i) - 1:,} tokens",
            tuple(int(amount[i]) for amount in amounts),
            _short(1 << i) if (i - first) % every == 0 else "",
            i in marked and i > first,
        )
        for i in range(first, stop)
    ]
    rows: list[tuple[Cell, ...]] = [
        (one.name, *(Number(f"{n:,}", n) for n in one.values)) for one in columns
    ]
    return panel(
        f"{things.capitalize()} by length in tokens",
        keys(names, (1, 2)[: len(names)], '<li><b class="mark"></b>context sizes</li>'),
        histogram(names, columns),
        details("Numbers", table("Lengths", ("length", *names), rows)),
    )


def _short(n: int) -> str:
    """Return a power of two as people name context sizes: `512`, `4k`, `1M`."""
    if n < 1 << 10:
        return str(n)
    return f"{n >> 10}k" if n < 1 << 20 else f"{n >> 20}M"


def _contexts(found: Lengths, totals: Mapping[str, Any], things: str) -> str:
    """Return how much is longer than each context size, up to the first that nothing exceeds."""
    n_documents, n_tokens = totals["documents"] or 1, totals["tokens"] or 1
    n_passed = sum(1 for context in CONTEXTS if found.longer(context))
    rows: list[tuple[Cell, ...]] = []
    for context in CONTEXTS[: n_passed + 1]:
        longer, beyond = found.longer(context), found.beyond(context)
        rows.append((
            f"{context:,}",
            Bar((longer,), n_documents), Number(f"{longer:,}", longer), _share(longer, n_documents),
            Bar((beyond,), n_tokens, (2,)), _share(beyond, n_tokens),
        ))  # fmt: skip
    head = ("context", "", f"longer {things}", "", "", "tokens past it")
    return panel("Longer than a context", table("Longer than a context", head, rows))


def _share(n: int, total: int) -> Number:
    """Return a share in percent, with two decimals where one would show 0.0%."""
    share = n / (total or 1)
    return Number(f"{share:.2%}" if 0 < share < 0.0005 else f"{share:.1%}", share)


def sources_section(manifest: Mapping[str, Any]) -> Section:
    """Return the sources with most tokens, the others as one, and what each gave to a mix."""
    rows, folder = grouped(manifest["sources"])
    lead = plural(_n_sources(manifest), "source") + (
        f" in {shortened(folder, 100)}" if folder else ""
    )
    if _n_sources(manifest) > len(rows):
        lead += f"; the {MOST_SOURCES} with most tokens are shown, the others as one"
    html = note(f"{lead}.") + _sources_table(manifest, rows)
    return Section("sources", "Sources", html + _mix(manifest.get("mix", {}).get("sources", ())))


def _sources_table(manifest: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    totals, things = manifest["totals"], things_of(manifest)
    full = max((row["tokens"] for row in rows), default=1)
    is_sft = manifest.get("kind") == "sft"

    def density(row: Mapping[str, Any]) -> Cell:
        if is_sft:
            return _share(row["trained_tokens"], row["tokens"])
        known = row["tokens"] and totals["text_bytes"]  # an import does not know its text
        value = row["text_bytes"] / row["tokens"] if known else 0
        return Number(f"{value:.2f}", value) if known else ""

    lines: list[tuple[Cell, ...]] = [
        (
            row["name"],
            Bar((row["tokens"],), full),
            Number(f"{row['tokens']:,}", row["tokens"]), _share(row["tokens"], totals["tokens"]),
            Number(f"{row['documents']:,}", row["documents"]),
            density(row),
            Number(f"{row['left_out']:,}", row["left_out"]),
        )
        for row in rows
    ]  # fmt: skip
    last = "trained" if is_sft else "bytes per token"
    head = ("source", "", "tokens", "", things, last, "left out")
    return table("Sources", head, lines, first=_FIRST_ROWS)


def grouped(sources: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return the counts of sources, those with most tokens first, and the folder of their files.

    A source without a name is a file, named without that folder. Sources after the first
    `MOST_SOURCES` are summed up in one row.
    """
    folder = _common_folder([one["path"] for one in sources if "name" not in one])
    named: dict[str, list[Mapping[str, Any]]] = {}
    for one in sources:
        named.setdefault(one.get("name") or one["path"][len(folder) :], []).append(one)
    rows = [_counts(name, own) for name, own in named.items()]
    rows.sort(key=lambda row: (-row["tokens"], row["name"]))
    if len(rows) > MOST_SOURCES + 1:
        others = rows[MOST_SOURCES:]
        rows = [*rows[:MOST_SOURCES], _counts(plural(len(others), "other source"), others)]
    return [{**row, "name": shortened(row["name"], LONGEST_NAME)} for row in rows], folder


def _common_folder(paths: Sequence[str]) -> str:
    """Return the folder of all paths with its slash; '' if they have none."""
    first, last = min(paths, default=""), max(paths, default="")
    n_same = next((i for i, c in enumerate(first) if last[i] != c), len(first))
    return first[: first.rfind("/", 0, n_same) + 1]


def _counts(name: str, sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    row = {"name": name, **{key: sum(one.get(key, 0) for one in sources) for key in _SUMMED}}
    row["left_out"] = sum(
        one.get("left_out", 0)
        + sum(sum(one.get(kind, {}).values()) for kind in ("drops", "rejects"))
        for one in sources
    )
    return row


def _mix(sources: Sequence[Mapping[str, Any]]) -> str:
    """Return what each source gave to train of a mix; '' for no mix."""
    rows = [
        (
            source["name"],
            *(Number(f"{source[key]:,}", source[key]) for key in ("wanted", "tokens", "documents")),
            Number(f"{source['epochs']:.4g}", source["epochs"]),
        )
        for source in sources
    ]
    title = "What each source of the mix gave to train"
    head = ("source", "wanted tokens", "tokens", "documents", "epochs")
    return panels(panel(title, table(title, head, rows))) if rows else ""


def statistics_for(
    directory: Path, manifest: Mapping[str, Any], tokenizer: str
) -> Statistics | str:
    """Return the statistics of `tokmill stats`, or why the page has none."""
    n_tokens = manifest["totals"]["tokens"]
    if n_tokens > MOST_TOKENS:
        command = f"tokmill stats {shlex.quote(str(directory))}"
        return f"{command} reads {plural(n_tokens, 'token')}, which takes minutes."
    try:
        return statistics_of(directory, dict(manifest), tokenizer)
    except TokmillError as error:
        return f"The tokens cannot be read: {error}"


def training_section(directory: Path, manifest: Mapping[str, Any]) -> Section | None:
    """Return which tokens of SFT are trained, and how full packed rows are; None for neither."""
    rows = detail_rows(manifest, str(directory))
    mask = [row for row in rows if row[0] in ("trained tokens", "mask", "noticed")]
    packs = [row for row in rows if row[0].startswith("packs, ")]
    parts = (
        [panel("Trained tokens", brief_facts(mask, "In full"))]
        if manifest.get("kind") == "sft"
        else []
    )
    if packs:
        parts.append(panel("Packed rows", _packs(manifest["packs"]), details("More", facts(packs))))
    return Section("training", "Training", panels(*parts)) if parts else None


def _packs(packs: Mapping[str, Any]) -> str:
    rows: list[tuple[Cell, ...]] = [
        (
            split,
            Bar((pack["fill"],), 1),
            Number(f"{pack['fill']:.2%}", pack["fill"]),
            *(Number(f"{pack[key]:,}", pack[key]) for key in ("rows", "capacity", "samples")),
        )
        for split, pack in packs.items()
    ]
    return table("Packed rows", ("split", "", "full", "rows", "tokens a row", "samples"), rows)


def _duplicates(statistics: Statistics | str, n_tokens: int) -> str:
    if isinstance(statistics, str):
        return note(statistics)
    rows: list[tuple[Cell, ...]] = [
        (
            f"{named.id} {quoted(named.text)}",
            Number(f"{named.count:,}", named.count),
            _share(named.count, n_tokens),
        )
        for named in statistics.frequent
    ]
    frequent = table("Most frequent ids", ("id", "times", "share"), rows)
    told = [row for row in statistics_rows(statistics) if row[0] != "lengths"]
    return brief_facts(told, "Unused ids") + details("Frequent ids", frequent)


def losses_section(
    directory: Path, manifest: Mapping[str, Any], statistics: Statistics | str
) -> Section:
    """Return drops and rejects by reason, what was not read, and equal documents."""
    totals = manifest["totals"]
    records, reasons = plural(totals["records"], "record"), list(_reasons(totals))
    parts = [note(f"Nothing was left out: none of {records} was dropped or rejected.")]
    if reasons:
        drops, rejects = (sum(totals[kind].values()) for kind in ("drops", "rejects"))
        head = ("reason", "", "", "records", "")
        lead = f"{plural(drops, 'drop')} and {plural(rejects, 'reject')} of {records}."
        about = "A setting drops records; a reject is broken, and is kept in the folder rejects."
        parts = [table("Left out", head, reasons, first=_FIRST_ROWS)]
        parts.append(note(f"{lead} {about}"))
    if examples := reject_examples(directory, manifest):
        cards = f'<div class="cards">{"".join(map(_example, examples))}</div>'
        parts.append(details(counted(len(examples), "examples of rejects"), cards))
    told = [row for row in detail_rows(manifest, str(directory)) if row[1] != "none"]
    if "lost_tokens" in totals:
        parts.append(brief_facts([row for row in told if row[0] == "drops"], "In full"))
    read = [row for row in told if row[0] in ("unread", "unread keys", "fields")]
    others = panel("Duplicates and ids", _duplicates(statistics, totals["tokens"]))
    if read:
        others += panel("Fields and keys", brief_facts(read, "In full"))
    html = panels(panel("Drops and rejects", *parts), f"<div>{others}</div>")
    return Section("losses", "Losses and duplicates", html)


def _reasons(totals: Mapping[str, Any]) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each reason of drops and of rejects, the most frequent first."""
    found: list[tuple[str, str, int]] = []
    for kind in ("drop", "reject"):
        ordered = sorted(totals[f"{kind}s"].items(), key=lambda item: (-item[1], item[0]))
        if len(ordered) > _MOST_REASONS + 1:
            others = ordered[_MOST_REASONS:]
            name = plural(len(others), "other reason")
            ordered = [*ordered[:_MOST_REASONS], (name, sum(n for _, n in others))]
        found += [(reason, kind, n) for reason, n in ordered]
    full = max((n for _, _, n in found), default=1)
    for reason, kind, n in found:
        bar, share = Bar((n,), full, (3 if kind == "drop" else 7,)), _share(n, totals["records"])
        yield reason, Said(kind, ""), bar, Number(f"{n:,}", n), share


def reject_examples(directory: Path, manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return rejects of the most frequent reasons, from the files that the manifest lists.

    Every reason has one before any has two.
    """
    counts: Mapping[str, int] = manifest["totals"]["rejects"]
    names = [entry["name"] for entry in manifest["files"]] if counts else []
    paths = [
        directory / name
        for name in names
        if name.startswith(f"{REJECTS}/") and DATASET_FILE.fullmatch(name)
    ]
    wanted = sum(min(n, _EXAMPLES_OF_REASON) for n in counts.values())
    found: dict[str, list[Mapping[str, Any]]] = {}
    for entry in islice(read_rejects(paths), _MOST_READ):
        if isinstance(entry, dict):
            kept = found.setdefault(str(entry.get("reason", "")), [])
            if len(kept) < _EXAMPLES_OF_REASON:
                kept.append(entry)
        if sum(map(len, found.values())) >= wanted:
            break
    frequent = sorted(found, key=lambda reason: (-counts.get(reason, 0), reason))
    turns = [
        found[reason][turn : turn + 1] for turn in range(_EXAMPLES_OF_REASON) for reason in frequent
    ]
    shown = [entry for turn in turns for entry in turn][:_MOST_EXAMPLES]
    return sorted(shown, key=lambda entry: frequent.index(str(entry.get("reason", ""))))


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
    except (binascii.Error, ValueError):
        return ""
    return data.decode("utf-8", "surrogateescape")


def run_section(manifest: Mapping[str, Any]) -> Section:
    """Return the time of the run by stage, its settings, the check of its ids, and its files."""
    told = dict(detail_rows(manifest, ""))
    config = manifest["config"]
    changed = "".join(
        f"<li><code>{label(option)}</code> {label(value)}</li>"
        for option, value in _options(not_default(config, config))
    )
    settings = panel(
        "Settings of the run",
        f'<ul class="options">{changed}</ul>',
        details("All settings", table("All settings", ("option", "value"), _options(config))),
        details("Check of the ids", facts([("engine", told["engine"])])),
        details("Files and checksums", facts(_files(manifest))),
    )
    time = panel("Time", facts([("elapsed", told["time"])]), _stages(manifest["run"]))
    return Section("run", "Run", panels(time, settings))


def _stages(run: Mapping[str, Any]) -> str:
    """Return the seconds of stages, in the order of a record's way; they add up to the total."""
    times = {stage: s for stage, s in stage_times(run).items() if s}
    if not times:
        return ""
    total = sum(times.values())
    large = {stage: s for stage, s in times.items() if s >= total / 100}
    if rest := total - sum(large.values()):
        large[plural(len(times) - len(large), "other stage")] = rest
    rows: list[tuple[Cell, ...]] = [
        (stage, Bar((s,), max(large.values()), (2,)), Number(f"{s:,.2f}", s), percent(s / total))
        for stage, s in large.items()
    ]
    rows.append(("all threads", "", Number(f"{total:,.2f}", round(total, 2)), ""))
    head, every = ("stage", "", "seconds", ""), ("stage", "seconds", "work")
    meaning = [(stage, Number(f"{s:,.2f}", s), STAGES.get(stage, "")) for stage, s in times.items()]
    all_stages = details("All stages", table("All stages", every, meaning))
    return table("Seconds by stage", head, rows, total=True) + all_stages


def _files(manifest: Mapping[str, Any]) -> Rows:
    files = manifest["files"]
    algorithms = {"blake3", "sha256"} & {key for entry in files for key in entry}
    return [
        ("files", f"{plural(len(files), 'file')} beside manifest.json"),
        ("format version", str(manifest["format_version"])),
        ("made with", f"tokmill {manifest.get('tokmill_version', '')}"),
        ("checksums", f"{', '.join(sorted(algorithms))}; compared by tokmill verify"),
        ("manifest sha256", manifest["sha256"]),
        ("tokenizer sha256", manifest["tokenizer"]["sha256"]),
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
