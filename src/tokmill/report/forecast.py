"""What a planned run says, as (label, text) rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.plural import plural
from tokmill.report.engine_text import engine_line
from tokmill.report.units import count, seconds, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.report.summary import Rows


def forecast_rows(plan: Mapping[str, Any], free_bytes: int) -> Rows:
    """Return a forecast, as `plan --json` prints it, in ten rows of a line."""
    is_sft = plan.get("kind") == "sft"
    fits = "" if plan["disk_bytes"] < free_bytes else ": TOO LITTLE"
    sampled = size(plan["sampled_bytes"])
    if plan["heads_only"]:
        sampled += ", at the heads of files that cannot be read from the middle"
    files, parts = plural(plan["files"], "file"), plural(plan["parts"], "part")
    disk = f"about {size(plan['disk_bytes'])} as {plan['dtype']}; {size(free_bytes)} free{fits}"
    eos = f"eos {plan['eos']['token']} = {plan['eos']['id']}"
    return [
        ("input", f"{files}, {size(plan['input_bytes'])}, in {parts}; sampled {sampled}"),
        ("renderer", _renderer(plan)),
        ("tokenizer", f"{plan['tokenizer']}, {eos}"),
        ("engine", engine_line(plan["engine"])),
        ("samples" if is_sft else "documents", f"about {count(plan['documents'])}"),
        ("tokens", f"about {count(plan['tokens'])}" + ("" if is_sft else ", eos included")),
        ("on disk", disk),
        ("time", f"about {seconds(plan['time_s'])}"),
        ("memory", _memory(plan["memory_bytes"], plan["usable_memory_bytes"])),
        ("rejects", f"{plan['reject_fraction']:.2%} of the sampled records"),
    ]


def _renderer(plan: Mapping[str, Any]) -> str:
    """Return how records become text, the fields of the first ones, and files that differ."""
    text = str(plan["renderer"])
    text += f": {plan['fields']}" if plan.get("fields") else ""
    return text + (f"; used of the text: {plan['left_out']}" if plan.get("left_out") else "")


def _memory(needed: int, usable: int) -> str:
    text = f"up to {size(needed)}; {size(usable)} usable"
    if needed <= usable:
        return text
    return f"{text}: TOO LITTLE; lower --workers, --threads or --engine-memory-bytes"
