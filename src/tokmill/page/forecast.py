"""The forecast of a run as (label, text) rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokmill.page.engine_text import engine_line
from tokmill.words.plural import plural
from tokmill.words.units import count, seconds, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.page.summary import Rows


def forecast_rows(plan: Mapping[str, Any], free_bytes: int) -> Rows:
    """Return a forecast (the object of `plan --json`) as ten rows of one line."""
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
    return [
        ("input", f"{files}, {size(plan['input_bytes'])}, in {parts}; {sampled}"),
        ("renderer", _renderer(plan)),
        ("tokenizer", f"{plan['tokenizer']}, {eos}"),
        ("engine", engine_line(plan["engine"])),
        ("samples" if is_sft else "documents", _amount(plan, "documents") + dropped),
        ("tokens", _amount(plan, "tokens") + ("" if is_sft else ", eos included")),
        ("on disk", f"{disk}; {size(free_bytes)} free{fits}"),
        ("time", f"about {seconds(plan['time_s'])}, at most {seconds(plan['time_high_s'])}"),
        ("memory", _memory(plan)),
        ("rejects", f"{plan['reject_fraction']:.2%} of the {records}"),
    ]


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
