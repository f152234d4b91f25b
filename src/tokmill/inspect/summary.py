"""Plans, runs and datasets in words: (label, text) rows for the terminal and for web pages."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tokmill.dataset.counts import CHECKED, ROUTED, SKIPPED, USUAL
from tokmill.dataset.layout import MANIFEST, PLAN
from tokmill.dataset.manifest import EngineEntry
from tokmill.dataset.rules import rule_in_words, rules_in
from tokmill.dataset.typed_json import from_json
from tokmill.engines.engine import REFERENCE
from tokmill.inspect.kept_markers import markers_line, markers_row
from tokmill.rendering.fields import ENOUGH, describe_fields, noted_sources, percent, used_share
from tokmill.sources.bad_text import REPLACED_CHARACTERS, REPLACED_RECORDS, replaced_line
from tokmill.tokenizer.unknown_text import LOST_BYTES, UNKNOWN_TOKENS, unknown_line
from tokmill.words import count, counted, epochs, plural, printable, seconds, size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tokmill.dataset.counts import Counts
    from tokmill.dataset.manifest import (
        Manifest,
        MaskEntry,
        MixSource,
        PackEntry,
        SourceEntry,
        TokenizerEntry,
        Usage,
    )
    from tokmill.inspect.statistics import Lengths, Statistics

Rows = list[tuple[str, str]]

MOST_ROWS = 10
"""Most lines at the end of a run; `tokmill report` shows the rest."""

_MOST_REASONS = 4
_MOST_KEYS = 8
_MOST_SOURCES = 12
_MOST_UNREAD = 3
_MOST_UNUSED = 8
_MOST_READINGS = 4
_KINDS = ("bin", "idx", "mask", "weight", "origin")

_SAID_ELSEWHERE = {
    *USUAL,
    UNKNOWN_TOKENS,
    LOST_BYTES,
    REPLACED_CHARACTERS,
    REPLACED_RECORDS,
}
"""Counters that have a row of their own, or say nothing unusual."""

_NO_ENGINES = ("mix", "import")
"""Names of the engine of datasets whose tokens were there before; the reason says whence."""

_PARTS = {
    "other": "all other text",
    "header": "headers of turns",
    "content": "text",
    "reasoning": "reasoning",
    "tool_call": "tool calls",
    "eot": "end of turn",
    "suffix": "template text after the end of turn",
    "end": "appended eos",
    "eot_outside": "end of turn outside the generation block",
    "header_inside": "header inside the generation block",
    "suffix_outside": "template text after it",
}
"""Words for the names that the manifest has for parts of turns, in its order."""

_COUNTERS = {
    "samples whose joint ids differ": "samples with other tokens near a mask boundary than "
    "their text encoded as one",
    "straddling tokens": "tokens with trained and untrained bytes",
    "cut samples": "samples cut to max_tokens",
}


def summary_rows(manifest: Manifest, directory: str, n_bytes: int) -> Rows:
    """Return the most important facts about a run, at most `MOST_ROWS` rows of one line.

    Rows without content are left out: the first row has every sum. `n_bytes`: size of all files.
    """
    totals = manifest.totals
    packs = manifest.packs
    rows = [
        ("records", _records(manifest)),
        ("drops", _by_reason(totals.drops, written=_sized(totals))),
        ("rejects", _by_reason(totals.rejects, f"{directory}/rejects")),
        _not_read(manifest),
        ("fields", fields_line(manifest)),
        ("kept text", markers_row(manifest)),
        ("unknown", _unknown(totals)),
        ("replaced", replaced_line(totals.counters)),
        ("tokens", _tokens(manifest)),
        ("trained", _trained(totals) if manifest.is_sft else ""),
        ("warning", _warning(totals) if manifest.is_sft else ""),
        ("packing", "; ".join(f"{split} {_rows(pack)}" for split, pack in packs.items())),
        ("engine", engine_line(manifest.engine, totals.checks)),
        ("time", _time(manifest.run)),
        (
            "output",
            f"{size(n_bytes)} as {manifest.dtype} in {directory}; see also tokmill report",
        ),
    ]
    return [(label, text) for label, text in rows if text]


_NOTICED = ("drops", "rejects", "not read", "kept text", "unknown", "replaced", "warning")
"""Rows of a summary about what was lost, changed or is unusual."""


def noticed_rows(manifest: Manifest, directory: str) -> Rows:
    """Return the rows of a summary that say what was lost, changed or is unusual in a run."""
    rows = summary_rows(manifest, directory, 0)
    return [(label, text) for label, text in rows if label in _NOTICED]


def detail_rows(manifest: Manifest, directory: str) -> Rows:
    """Return all facts in a manifest about a run, except lengths and sizes."""
    totals = manifest.totals
    sized = _sized(totals)
    rows = [
        ("records", _records(manifest)),
        ("drops", _by_reason(totals.drops, most=None, written=sized) or "none"),
        ("rejects", _by_reason(totals.rejects, f"{directory}/rejects", most=None) or "none"),
        ("unread", _unread(manifest)),
        ("unread keys", _unread_keys(totals)),
        ("renderers", renderers_text(totals)),
        ("fields", fields_line(manifest)),
        ("kept text", markers_row(manifest)),
        ("unknown", _unknown(totals)),
        ("replaced", replaced_line(totals.counters)),
        ("tokens", _tokens(manifest)),
        *(_mask_rows(manifest, manifest.mask) if manifest.mask else ()),
        *((f"packs, {split}", _packing(pack)) for split, pack in manifest.packs.items()),
        ("mix", "\n".join(map(": ".join, mix_rows(manifest.mix.sources if manifest.mix else ())))),
        ("held-out", _held_out(manifest)),
        ("tokenizer", _tokenizer(manifest.tokenizer)),
        ("engine", describe_engine(manifest.engine, totals.checks)),
        ("rules", rules_text(manifest)),
        ("files", _files(manifest)),
        ("time", _time(manifest.run)),
    ]
    return [(label, text) for label, text in rows if text]


def _held_out(manifest: Manifest) -> str:
    """Return how many documents of a mix share text with held-out ones; '' if none were named."""
    mix = manifest.mix
    if mix is None or mix.contaminated is None:
        return ""
    is_dropped = mix.settings.get("drop_contaminated")
    found = f"{plural(mix.contaminated, 'document')} {'left out' if is_dropped else 'marked'}"
    return f"{found}, with text of {', '.join(file.path for file in mix.against)}"


def _unknown(totals: Counts) -> str:
    """Return what the tokenizer could not write; '' if nothing."""
    return unknown_line(totals.counters, totals.tokens, totals.text_bytes)


def mix_rows(sources: Sequence[MixSource]) -> Rows:
    """Return what each source gave to train of a mix: wanted, got, epochs."""
    total = sum(source.tokens for source in sources)
    return [
        (
            source.name,
            f"{count(source.tokens)} of {count(source.wanted)} wanted tokens of train "
            f"({source.tokens / max(1, total):.2%}), {epochs(source.epochs)}, "
            f"{plural(source.documents, 'document')}",
        )
        for source in sources
    ]


def statistics_rows(statistics: Statistics) -> Rows:
    """Return what the tokens of a dataset tell: lengths, duplicates, ids that never occur."""
    lengths, equal, n_ids = statistics.lengths, statistics.duplicates, len(statistics.id_counts)
    n_documents, n_tokens = (max(1, statistics.totals[key]) for key in ("documents", "tokens"))
    repeated = "none is equal to an earlier one"
    if equal.documents:
        repeated = (
            f"{equal.documents:,} ({equal.documents / n_documents:.2%}), with "
            f"{plural(equal.tokens, 'token')} ({equal.tokens / n_tokens:.2%})\n"
            f"most often, {equal.most:,} times: document {equal.example}"
        )
    if equal.in_both_splits:
        repeated += f"\n{equal.in_both_splits:,} of val are in train, too"
    unused = f"{statistics.n_unused:,} of {n_ids:,} ({share_of(statistics.n_unused, n_ids)})"
    if examples := statistics.unused[:_MOST_UNUSED]:
        texts = (f"{named.id} {quoted(named.text)}".strip() for named in examples)
        unused += f"\nsuch as {', '.join(texts)}"
    rows = [("lengths", lengths_text(lengths))]
    if statistics.prompts is not None:
        rows.append(("prompts", lengths_text(statistics.prompts)))
    rows += [("duplicates", repeated), ("unused ids", unused)]
    return rows + ([("no texts", statistics.no_texts)] if statistics.no_texts else [])


def lengths_text(lengths: Lengths) -> str:
    """Return mean, quantiles and maximum of the lengths of documents, of which there are some."""
    quantiles = (f"{percent} % up to {lengths.percentile(percent):,}" for percent in (50, 90, 99))
    return f"mean {lengths.mean:,.0f}; {', '.join(quantiles)}; longest {lengths.longest:,}"


def quoted(text: str) -> str:
    """Return the text of an id between marks that show its spaces; '' without a text."""
    return f"'{printable(text)}'" if text else ""


def _unread(manifest: Manifest) -> str:
    """Return which input files were not read to their end, or ''."""
    totals = manifest.unread
    if totals is None:
        return ""
    paths = [source.path for source in manifest.sources if source.counts.unread]
    named = ", ".join(paths[:_MOST_UNREAD]) + (", …" if len(paths) > _MOST_UNREAD else "")
    amounts = [(totals.text_bytes, "bytes of text"), (totals.stored_bytes, "stored bytes")]
    lost = " and ".join(counted(n, what) for n, what in amounts if n)
    return f"{plural(totals.files, 'file')} not read to the end{lost and f', {lost}'}: {named}"


def _not_read(manifest: Manifest) -> tuple[str, str]:
    """Return one row for input that was not read to its end and for unread keys of records.

    One row for both, since the summary has room for ten rows.
    """
    unread, keys = _unread(manifest), _unread_keys(manifest.totals, most=_MOST_KEYS)
    if unread:
        return "unread", unread + (f"; unread keys: {keys}" if keys else "")
    return "unread keys", keys


def _unread_keys(totals: Counts, *, most: int | None = None) -> str:
    """Return the keys of records that nothing reads, with the number of records that have them."""
    counts = totals.unread_keys
    ordered = sorted(counts.items(), key=lambda row: (-row[1], row[0]))
    shown = ordered[:most]
    listed = [f"{key} {n:,}" for key, n in shown]
    if len(ordered) > len(shown):
        listed.append(f"and {len(ordered) - len(shown)} more")
    return ", ".join(listed)


def things_of(manifest: Manifest) -> str:
    """Return what the dataset has: `documents` or `samples`."""
    return "samples" if manifest.is_sft else "documents"


def _records(manifest: Manifest) -> str:
    """Return how many records became documents, drops or rejects."""
    totals = manifest.totals
    extra = totals.extra
    outcomes = (
        plural(totals.documents, "sample" if manifest.is_sft else "document"),
        plural(sum(totals.drops.values()), "drop"),
        plural(sum(totals.rejects.values()), "reject"),
    )
    more = f" + {plural(extra, 'extra sample')} of the same records" if extra else ""
    text = f"{totals.records:,}{more} = {' + '.join(outcomes)}"
    is_mixed = len(totals.renderers) > 1
    return f"{text}; rendered by {renderers_text(totals)}" if is_mixed else text


def rules_text(manifest: Manifest) -> str:
    """Return the rules under which a dataset was made; '' for an import, which has none."""
    rules = rules_in(manifest.rules, manifest.kind)
    return "\n".join(rule_in_words(name, numbers) for name, numbers in rules.items())


def rules_line(manifest: Manifest) -> str:
    """Return the same in a few words: `rules: reading 1, rendering 1 and 2`."""
    rules = rules_in(manifest.rules, manifest.kind)
    named = [f"{name} {' and '.join(map(str, numbers))}" for name, numbers in rules.items()]
    return f"rules: {', '.join(named)}" if named else ""


def renderers_text(totals: Counts) -> str:
    """Return the documents of each renderer, where each file has its own; '' elsewhere."""
    counts = totals.renderers
    listed = [f"{name} {n:,} ({share_of(n, counts.total())})" for name, n in counts.most_common()]
    return f"{', '.join(listed)}, by the script of each file" if listed else ""


def _mask_rows(manifest: Manifest, mask: MaskEntry) -> Rows:
    """Return rows about an SFT dataset: trained tokens, mask, counters."""
    totals = manifest.totals
    sized = _sized(totals, noticed)
    rule = f"preset {mask.preset}, boundary {mask.boundary}, {mask.template}"
    sources = manifest.sources
    return [
        ("trained tokens", _share(totals)),
        ("by source", _shares(sources) if len(sources) > 1 else ""),
        ("warning", _warning(totals)),
        ("mask", "; ".join([rule, trained_parts(mask.trained)] if mask.trained else [rule])),
        (
            "noticed",
            ", ".join(sized(n, name) for name, n in _noticed(totals).items()) or "nothing",
        ),
    ]


def _trained(totals: Counts) -> str:
    text = _by_reason(_noticed(totals), written=_sized(totals, noticed))
    return _share(totals) + (f"; noticed {text}" if text else "")


def _warning(totals: Counts) -> str:
    """Return what of the trained text should be looked at before training; '' if nothing."""
    counters = totals.counters
    if not counters:
        return ""
    from tokmill.chat.inserted import thinking_note

    return thinking_note(counters)


def _sized(
    totals: Counts, written: Callable[[int, str], str] = "{:,} {}".format
) -> Callable[[int, str], str]:
    """Return `written`, with the tokens that a length rule left out for the reason behind it."""
    lost = totals.lost_tokens
    every = totals.tokens + sum(lost.values())

    def sized(n: int, reason: str) -> str:
        if not (n_tokens := lost.get(reason, 0)):
            return written(n, reason)
        return f"{written(n, reason)} ({plural(n_tokens, 'token')}, {n_tokens / every:.1%} of all)"

    return sized


def _noticed(totals: Counts) -> dict[str, int]:
    """Return the counters that say something unusual."""
    counters = totals.counters
    return {name: n for name, n in counters.items() if n and name not in _SAID_ELSEWHERE}


def share_of(n: float, total: float) -> str:
    """Return a share in percent; only nothing is `0.0%`, and only all is `100.0%`."""
    share = n / (total or 1)
    if 0.9995 <= share < 1:
        return ">99.9%"
    if 0 < share < 0.0005:
        return f"{share:.2%}" if share >= 0.00005 else "<0.01%"
    return f"{share:.1%}"


def _share(totals: Counts) -> str:
    trained = totals.trained_tokens
    return f"{trained:,} ({share_of(trained, totals.tokens)})"


def _rows(pack: PackEntry) -> str:
    rows = plural(pack.rows, "row")
    most = ""
    if pack.max_samples_per_row:
        things = "piece" if pack.last else "sample"
        most = f" and at most {plural(pack.max_samples_per_row, things)}"
    return f"{rows} of {plural(pack.capacity, 'token')}{most}, {pack.fill:.2%} full"


def _packing(pack: PackEntry) -> str:
    """Return what was packed into the rows of a split, and what is no training token."""
    if not pack.last:
        memory = f"{pack.bytes_per_sample} bytes of memory per sample"
        return f"{plural(pack.samples, 'sample')} in {_rows(pack)}; {memory}"
    return (
        f"{plural(pack.pieces, 'piece')} of {plural(pack.samples, 'document')} in "
        f"{_rows(pack)}; {plural(pack.padding, 'token')} of padding, "
        f"{pack.left_out:,} left out (last pieces: {pack.last})"
    )


def _shares(sources: Sequence[SourceEntry]) -> str:
    """Return the trained share of the first sources, one per line."""
    lines = [
        f"{source.path}: {share_of(source.counts.trained_tokens, source.counts.tokens)}"
        for source in sources[:_MOST_SOURCES]
    ]
    return "\n".join(lines + ["…"] * (len(sources) > _MOST_SOURCES))


def _tokens(manifest: Manifest) -> str:
    by_split: dict[str, int] = {}
    for shard in manifest.shards:
        by_split[shard.split] = by_split.get(shard.split, 0) + shard.tokens
    totals = manifest.totals
    parts = [] if manifest.is_sft else ["eos included"]
    in_val = f"{by_split['val']:,} of them in val" if "val" in by_split else "no validation split"
    text = f"{totals.tokens:,} ({', '.join([*parts, in_val])})"
    if totals.tokens and totals.text_bytes:  # an import does not know its text
        text += f"; text bytes per token {totals.text_bytes / totals.tokens:.2f}"
    return text


def _by_reason(
    reasons: Mapping[str, int],
    where: str = "",
    *,
    most: int | None = _MOST_REASONS,
    written: Callable[[int, str], str] = "{:,} {}".format,
) -> str:
    """Return counts by reason, the largest first; reasons after the first `most` are summed."""
    if not reasons:
        return ""
    ordered = sorted(reasons.items(), key=lambda row: (-row[1], row[0]))
    shown = ordered if most is None or len(ordered) <= most else ordered[: most - 1]
    listed = [written(n, reason) for reason, n in shown]
    if rest := ordered[len(shown) :]:
        listed.append(f"{sum(n for _, n in rest):,} for {len(rest)} other reasons")
    total = f"{sum(reasons.values()):,}: " if len(ordered) > 1 else ""
    return total + ", ".join(listed) + (f" (see {where})" if where else "")


def _tokenizer(tokenizer: TokenizerEntry) -> str:
    eos, bos = tokenizer.eos, tokenizer.bos
    text = f"{tokenizer.name}, {tokenizer.vocab_size:,} ids, eos {eos.token} = {eos.id}"
    return text if bos is None else f"{text}, bos {bos.token} = {bos.id}"


def _files(manifest: Manifest) -> str:
    kinds: dict[str, int] = {}
    for entry in manifest.files:
        kind = "rejects" if entry.name.startswith("rejects/") else entry.name.split(".")[-1]
        kinds[kind] = kinds.get(kind, 0) + 1
    listed = [f"{n} .{kind}" for kind, n in sorted(kinds.items()) if kind in _KINDS]
    plan = [PLAN] if any(entry.name == PLAN for entry in manifest.files) else []
    return ", ".join([*listed, MANIFEST, *plan])


def _time(run: Usage) -> str:
    """Return the seconds of a run, those before the first text was encoded, speed and memory."""
    text, start_s = seconds(run.wall_s), run.start_s or 0.0
    if run.text_bytes_per_s:
        work_s = max(run.wall_s - start_s, 1e-3)
        speed = f"{size(run.text_bytes_per_s * run.wall_s / work_s)} of text per second"
        text += f": {seconds(start_s)} start-up, then {speed}" if start_s else f", {speed}"
    if run.peak_memory_bytes:
        text += f"; peak memory {size(run.peak_memory_bytes)}"
    if run.resumed_parts:
        text += f" ({plural(run.resumed_parts, 'part')} from earlier runs)"
    return text


def fields_line(manifest: Manifest) -> str:
    """Return the fields that were read and left out, with their share of the text; '' for chats.

    If less than 90% of the text was read, in total or of a source, the line says so.
    """
    if manifest.readings:
        return _fields_of_readings(manifest)
    used, counts = manifest.fields_read, manifest.totals.fields
    if not used or not counts:
        return ""
    share = used_share(counts, used)
    only = f"only {percent(share)} of the text is used: " if share < ENOUGH else ""
    sources = [(source.path, source.counts.fields) for source in manifest.sources]
    few = noted_sources(sources, used) if len(sources) > 1 else ""
    return f"{only}{describe_fields(counts, used)}" + (f"; used of the text: {few}" if few else "")


def _fields_of_readings(manifest: Manifest) -> str:
    """Return the same for files that were read in several ways, a few of which are shown."""
    lines = []
    for number, reading in enumerate(manifest.readings):
        counts: Counter[str] = Counter()
        for source in manifest.sources:
            if source.reading == number:
                counts.update(source.counts.fields)
        if counts:
            lines.append(f"{reading.files}: {describe_fields(counts, reading.fields_read)}")
    return " | ".join(lines[:_MOST_READINGS] + ["…"] * (len(lines) > _MOST_READINGS))


def trained_parts(names: Sequence[str]) -> str:
    """Return which parts of a trained turn are trained, from their names in a manifest."""
    return "trains " + ", ".join(_PARTS.get(name, name) for name in names)


def noticed(n: int, counter: str) -> str:
    """Return the count of a counter with its description."""
    return counted(n, _COUNTERS.get(counter, counter))


def engine_line(engine: EngineEntry, checks: Mapping[str, int] | None = None) -> str:
    """Return the engine, and whether its ids were compared with the reference's.

    `checks`: totals of a finished run, see `Counts`.
    """
    if engine.name == REFERENCE:
        return f"{engine.name}: {engine.version}"
    name, others = f"{engine.name} {engine.version}", ["ids not checked"]
    if engine.name in _NO_ENGINES:
        name, others = f"{engine.name}: {engine.reason}", []
    equal = ["ids equal to the reference's (checked)"]
    return ", ".join([name, *(equal if _checked(engine, checks or {}) else others)])


def describe_engine(engine: EngineEntry, checks: Mapping[str, int] | None = None) -> str:
    """Return the engine with its checks, speeds, and the reasons against other engines."""
    text = f"{engine.name} {engine.version} ({engine.reason}"
    speeds = engine.mb_per_s
    if speeds:
        text += ": " + ", ".join(f"{name} {speed:.0f} MB/s" for name, speed in speeds.items())
    text = "; ".join([text, *_checked(engine, checks or {})]) + ")"
    text = "\n".join([text, *_exceptions(checks or {})])
    for name, reason in engine.refused.items():
        text += f"\n{name} not used: {reason}"
    return text


def _checked(engine: EngineEntry, checks: Mapping[str, int]) -> list[str]:
    """Return how many texts and characters were compared with the reference, or nothing."""
    before, during = engine.n_checked, checks.get(CHECKED, 0)
    where = [plural(before, "text") + (" before the run" if during else "")] if before else []
    where += [f"{plural(during, 'document')} during it"] if during else []
    if characters := _scanned(engine):
        where = [", ".join([" and ".join(where), characters])] if where else [characters]
    return [f"same ids as the reference on {' and '.join(where)}"] if where else []


def _scanned(engine: EngineEntry) -> str:
    """Return how many characters were compared with the reference, and when; '' for none."""
    scan = engine.scan
    if scan is None:
        return ""
    n_other = sum(last - first + 1 for first, last in scan.differs)
    text = plural(scan.n_characters, "character") + (f" except {n_other:,}" if n_other else "")
    if scan.uncompared:
        text += f" (the reference encodes documents with {'these or ' if n_other else ''}others)"
    elif n_other:
        text += " (the reference encodes their documents)"
    return text + (" (compared in an earlier run)" if engine.scan_kept else "")


def _exceptions(checks: Mapping[str, int]) -> list[str]:
    """Return the documents that the engine did not encode, or that could not be compared."""
    routed = checks.get(ROUTED, 0)
    found = [f"{plural(routed, 'document')} encoded by the reference"] if routed else []
    return found + [
        f"{plural(n, 'sampled document')} not compared: {name.removeprefix(SKIPPED)}"
        for name, n in checks.items()
        if name.startswith(SKIPPED)
    ]


STAGES = {
    "prepare": "tokenizer, plan and choice of engine, before the first block",
    "read": "blocks of records from files",
    "parse": "records to columns",
    "where": "the function of where, for each record",
    "render": "columns to documents",
    "wait": "waiting for an engine that encodes one block at a time",
    "load engine": "loading the engine in each process",
    "encode": "documents to ids",
    "mask": "SFT: samples to texts, their tokens to ids and mask",
    "narrow": "adding eos, converting ids to the output type, counting",
    "spot check": "encoding sampled documents again with the reference",
    "hash": "checksums of the shards",
    "write": "writing shards and making them durable",
}
"""The stages in the order in which a record passes them, and their work."""


def stage_times(run: Usage) -> dict[str, float]:
    """Return the seconds of each stage in all threads, in hundredths: so those shown add up.

    Stages overlap, and a thread that waits for a processor counts in its stage: so their sum
    exceeds the elapsed time.
    """
    stage_s = run.stage_s
    names = [name for name in STAGES if name not in ("mask", "where") or name in stage_s]
    names += [name for name in stage_s if name not in STAGES]
    return {name: round(stage_s.get(name, 0.0), 2) for name in names}


def profile_rows(manifest: Manifest) -> list[tuple[str, str]]:
    """Return one row per stage (seconds of all threads, share, speed), a total, and the engine."""
    run, text_bytes = manifest.run, manifest.totals.text_bytes
    times = stage_times(run)
    total_s = sum(times.values())
    rows = []
    for stage, taken in times.items():
        speed = f"{size(text_bytes / taken)}/s" if taken and text_bytes else ""
        shown = f"{taken:8.2f} s {taken / (total_s or 1):4.0%}  {speed:>11}"
        rows.append((stage, f"{shown}  {STAGES.get(stage, '')}".rstrip()))
    overlap = f"{total_s:.2f} s in all threads, {run.wall_s:.2f} s elapsed"
    rows.append(("total", f"{overlap}, {run.cpu_s or 0.0:.2f} s of CPU time"))
    checks = manifest.totals.checks
    return [*rows, ("engine", describe_engine(manifest.engine, checks))]


def forecast_rows(plan: Mapping[str, Any], free_bytes: int) -> Rows:
    """Return a forecast (the object of `plan --json`) as rows of one line."""
    is_sft = plan.get("kind") == "sft"
    fits = "" if plan["disk_bytes"] < free_bytes else ": TOO LITTLE"
    sampled = "read completely" if plan["is_counted"] else f"sampled {size(plan['sampled_bytes'])}"
    if plan["heads_only"]:
        sampled += ", of some files only the beginning"
    files, parts = plural(plan["files"], "file"), plural(plan["parts"], "part")
    if plan["parts"] > 1:
        parts += f" of up to {size(plan['part_bytes'])}"
    records = "records" if plan["is_counted"] else "sampled records"
    lost = plan["drop_fraction"]
    dropped = f"; {lost:.2%} of the {records} dropped" if lost else ""
    bill = plan["disk"]
    band = f"{size(bill['low_bytes'])} to {size(bill['high_bytes'])}"
    disk = f"about {size(plan['disk_bytes'])} ({band}) as {plan['dtype']}"
    eos = f"eos {plan['eos']['token']} = {plan['eos']['id']}"
    kept = markers_line(
        plan["counters"], plan["encoded_documents"], can_separate=plan["can_separate"]
    )
    replaced = replaced_line(plan["counters"])
    return [
        ("input", f"{files}, {size(plan['input_bytes'])}, in {parts}; {sampled}"),
        ("renderer", _renderer(plan)),
        ("tokenizer", f"{plan['tokenizer']}, {eos}"),
        ("engine", engine_line(from_json(EngineEntry, plan["engine"]))),
        ("samples" if is_sft else "documents", _amount(plan, "documents") + dropped),
        ("tokens", _amount(plan, "tokens") + ("" if is_sft else ", eos included")),
        ("on disk", f"{disk}; {size(free_bytes)} free{fits}"),
        ("time", f"about {seconds(plan['time_s'])}, at most {seconds(plan['time_high_s'])}"),
        ("memory", _memory(plan)),
        ("rejects", f"{plan['reject_fraction']:.2%} of the {records}{_limit(plan)}"),
        *([("kept text", f"{kept} (in the {records})")] if kept else ()),
        *([("unknown", f"{plan['unknown']} (in the {records})")] if plan["unknown"] else ()),
        *([("replaced", f"{replaced} (in the {records})")] if replaced else ()),
    ]


def _limit(plan: Mapping[str, Any]) -> str:
    """Return that more records are rejected than the limit of the run allows; '' if not."""
    if not plan["has_too_many_rejects"]:
        return ""
    return f": more than --max-reject-fraction={plan['max_reject_fraction']:g} allows"


def _renderer(plan: Mapping[str, Any]) -> str:
    """Return the renderer, the fields of the first records, and files with other fields."""
    text = str(plan["renderer"])
    text += f": {plan['fields']}" if plan.get("fields") else ""
    return text + (f"; used of the text: {plan['left_out']}" if plan.get("left_out") else "")


def _amount(plan: Mapping[str, Any], name: str) -> str:
    """Return a count, or an estimate with its range."""
    if plan["is_counted"]:
        return f"{plan[name]:,}"
    low, high = (count(plan[f"{name}_{end}"]) for end in ("low", "high"))
    return f"about {count(plan[name])} ({low} to {high})"


def _memory(plan: Mapping[str, Any]) -> str:
    """Return the peak memory of all processes, and whether the machine has it."""
    threads, needed, usable = plan["threads"], plan["memory_bytes"], plan["usable_memory_bytes"]
    layout = plural(threads, "thread")
    if plan["workers"] > 1:
        layout = f"{plural(plan['workers'], 'worker')} of {layout}"
    text = f"up to {size(needed)} with {layout}; {size(usable)} usable"
    if needed <= usable:
        return text
    return f"{text}: TOO LITTLE; lower --workers, --threads or run.engine_memory_bytes"
