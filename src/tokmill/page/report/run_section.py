"""The run that made the dataset: time by stage, checks of the ids, splits, sums, settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokmill.dataset.counts import CHECKED, CHECKED_BYTES, ROUTED, SKIPPED
from tokmill.engines.engine import REFERENCE
from tokmill.fields import percent
from tokmill.page.engine_text import scanned
from tokmill.page.markup import label
from tokmill.page.profile import STAGES
from tokmill.page.report.charts import Chart, Row, bars
from tokmill.page.report.section import Cell, Section, facts, table
from tokmill.page.summary import elapsed
from tokmill.words.plural import plural
from tokmill.words.printable import printable
from tokmill.words.units import seconds, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tokmill.page.summary import Rows

_MOST_ITEMS = 20
_LONGEST_VALUE = 300


def run_section(manifest: Mapping[str, Any]) -> Section:
    """Return the section; `data` has stages, checks and sums of the manifest."""
    run, totals = manifest["run"], manifest["totals"]
    checks = totals.get("checks", {})
    settings = "\n".join(_settings(manifest["config"]))
    html = "".join([
        facts(_time(run)),
        _stages(run.get("stage_s", {})),
        "<h3>Check of the ids</h3>",
        facts(_parity(manifest["engine"], checks)),
        "<h3>Splits</h3>",
        _splits(manifest),
        "<h3>Files</h3>",
        facts(_files(manifest)),
        f"<details><summary>Settings of the run</summary><pre>{settings}</pre></details>",
    ])  # fmt: skip
    data = {
        "stage_s": run.get("stage_s", {}),
        "wall_s": run["wall_s"],
        "checks": {key: checks.get(key, 0) for key in (CHECKED, CHECKED_BYTES, ROUTED)},
        "sha256": manifest["sha256"],
    }
    return Section("run", "The run", html, data)


def _time(run: Mapping[str, Any]) -> Rows:
    rows = [
        ("elapsed", elapsed(run)),
        ("CPU time", seconds(run["cpu_s"]) if "cpu_s" in run else ""),
        ("peak memory", size(run["peak_memory_bytes"]) if run["peak_memory_bytes"] else ""),
        ("threads", f"{run['threads']:,}" if "threads" in run else ""),
        ("workers", f"{run['workers']:,}" if "workers" in run else ""),
        ("parts of earlier runs", f"{run['resumed_parts']:,}" if run["resumed_parts"] else ""),
    ]
    return [row for row in rows if row[1]]


def _stages(stage_s: Mapping[str, float]) -> str:
    """Return the time of stages, in the order of a record's way."""
    if not stage_s:
        return ""
    total = sum(stage_s.values()) or 1
    named = [stage for stage in STAGES if stage in stage_s]
    named += sorted(set(stage_s) - set(STAGES))
    chart = Chart(
        "run-stages",
        "Seconds of all threads by stage",
        "Time of each stage in the order of a record's way. Stages overlap, so their sum exceeds "
        "the elapsed time.",
        ("seconds",),
        key="stage",
        written="{:.3f}".format,
        tones=(2,),
    )
    rows = [
        Row(stage, (stage_s[stage],), f"{stage_s[stage]:,.2f} s, {percent(stage_s[stage] / total)}")
        for stage in named
    ]
    meaning = facts([(stage, STAGES.get(stage, "")) for stage in named])
    return f"{bars(chart, rows)}<details><summary>What the stages do</summary>{meaning}</details>"


def _parity(engine: Mapping[str, Any], checks: Mapping[str, int]) -> Rows:
    """Return what was compared with the reference tokenizer, and what it encoded itself."""
    speeds = engine["mb_per_s"]
    skipped = sum(n for name, n in checks.items() if name.startswith(SKIPPED))
    compared = f"{checks.get(CHECKED, 0):,} ({size(checks.get(CHECKED_BYTES, 0))} of text)"
    rows = [
        ("engine", f"{engine['name']} {engine['version']}: {engine['reason']}"),
        (
            "texts compared before the run",
            f"{engine['n_checked']:,}" if engine["n_checked"] else "",
        ),
        ("documents compared during the run", compared if checks.get(CHECKED) else ""),
        ("documents not compared", f"{skipped:,} of the sampled ones" if skipped else ""),
        ("characters compared", scanned(engine)),
        (
            "encoded by the reference",
            plural(checks[ROUTED], "document") if checks.get(ROUTED) else "",
        ),
        ("speeds", ", ".join(f"{name} {speed:.0f} MB/s" for name, speed in speeds.items())),
        *((f"{name} not used", reason) for name, reason in engine["refused"].items()),
    ]
    if engine["name"] == REFERENCE:
        rows.insert(1, ("comparison", "none needed: it is the reference"))
    return [row for row in rows if row[1]]


def _splits(manifest: Mapping[str, Any]) -> str:
    sums: dict[str, list[int]] = {}
    for shard in manifest["shards"]:
        found = sums.setdefault(shard["split"], [0, 0, 0])
        for i, n in enumerate((1, shard["documents"], shard["tokens"])):
            found[i] += n
    things = "samples" if manifest.get("kind") == "sft" else "documents"
    rows: list[list[str | Cell]] = [
        [split, *(Cell(f"{n:,}", n) for n in found)] for split, found in sums.items()
    ]
    return table(("split", "shards", things, "tokens"), rows)


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


def _settings(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the settings like TOML, escaped; long values are cut."""
    for name, section in config.items():
        if not isinstance(section, dict):
            continue
        yield f"[{label(name)}]"
        for key, value in section.items():
            yield f"{label(key, 60)} = {label(_value(value), _LONGEST_VALUE)}"
        yield ""


def _value(value: Any) -> str:
    if isinstance(value, list):
        more = [f"… {len(value) - _MOST_ITEMS:,} more"] if len(value) > _MOST_ITEMS else []
        return f"[{', '.join([*map(_value, value[:_MOST_ITEMS]), *more])}]"
    return printable(json.dumps(value, ensure_ascii=False))
