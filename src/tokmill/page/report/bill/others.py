"""Serving, host RAM and disk on the page: words and bars of one case, as `script.js` has them."""

from __future__ import annotations

from collections.abc import Iterable

from tokmill.bill.full_bill import FullBill
from tokmill.bill.text.summary import summary_rows
from tokmill.page.report.bill.axes import Axes, place
from tokmill.page.report.bill.chart import FITS_KINDS, NO_AMOUNT, Bar, Limit, shown
from tokmill.page.report.bill.groups import LOADING_GROUPS, SERVING_GROUPS
from tokmill.page.report.bill.tables import Loading, Serving
from tokmill.page.report.charts import Chart, Line, Row
from tokmill.page.report.charts import bars as plain_bars
from tokmill.settings.training import LOADING
from tokmill.words.plural import plural
from tokmill.words.units import memory, size

STRATEGIES = {
    "memmap": "mapped once",
    "lazy": "mapped by each worker",
    "read": "all files read",
    "concatenate": "read and joined",
    "int64": "cast to int64",
    "lists": "Python lists",
    "copies": "read by each worker",
}
HOST_WORDS = ("fits", "probably fits", "does not fit", "fits once memory is freed", "")
HOST_KINDS = ("yes", "maybe", "no", "maybe", "")
NO_CONTEXT = "beyond the model's positions"
FARTHEST = 4
"""A limit is drawn if it is at most so many times the longest bar."""

ServedAt = tuple[int, int, int, int]
"""A case of serving: the indices of model, GPU, type of the weights and batch."""
LoadedAt = tuple[int, int]
"""A case of loading: the indices of how workers start and of their number."""


def serving_bars(axes: Axes, table: Serving, at: ServedAt) -> tuple[list[Bar], Limit]:
    """Return a bar for each context, and the memory of the GPU."""
    model, gpu = axes.models[at[0]].model, axes.gpus[at[1]]
    found = []
    for context, tokens in enumerate(table.contexts):
        number = serving_number(axes, table, at, context)
        amounts, low, high = numbers_of(table.amounts, number, len(SERVING_GROUPS))
        name = plural(tokens, "token")
        if high == 0:
            text = NO_CONTEXT if 0 < model.positions < tokens else NO_AMOUNT
            found.append(Bar(name, "", amounts, 0, 0, text))
            continue
        digit = int(table.verdicts[number * len(axes.gpus) + at[1]])
        found.append(
            Bar(name, "", amounts, low, high, shown(sum(amounts), digit), FITS_KINDS[digit])
        )
    return found, Limit(gpu.memory_bytes, f"{gpu.name}, {memory(gpu.memory_bytes)}")


def serving_words(axes: Axes, table: Serving, at: ServedAt) -> tuple[str, str]:
    """Return the longest context that fits as a sentence, and its kind in `FITS_KINDS`."""
    named, gpu = axes.models[at[0]].model.name, axes.gpus[at[1]]
    where = f"on {gpu.name} ({memory(gpu.memory_bytes)})"
    many = plural(table.batches[at[3]], "sequence")
    for context in reversed(range(len(table.contexts))):
        number = serving_number(axes, table, at, context)
        digit = int(table.verdicts[number * len(axes.gpus) + at[1]])
        if digit != 2:
            tokens = plural(table.contexts[context], "token")
            word = {1: " by the estimate, not by the upper bound"}.get(digit % 3, "")
            said = f"{named} serves {many} of up to {tokens} {where}{word}"
            return (said if digit < 3 else f"{said}, if the rest fits"), FITS_KINDS[digit]
    return f"{named} serves none of these contexts {where}, {many} at once", "no"


def serving_number(axes: Axes, table: Serving, at: ServedAt, context: int) -> int:
    """Return the number of a case of serving."""
    lengths = (len(axes.models), len(table.weights), len(table.batches), len(table.contexts))
    return place((at[0], at[2], at[3], context), lengths)


def loading_bars(table: Loading, at: LoadedAt) -> tuple[list[Bar], Limit | None]:
    """Return a bar for each strategy, and the memory of the machine, if it is not far away."""
    found = []
    lengths = (len(table.starts), len(table.workers), len(LOADING))
    for strategy, loading in enumerate(LOADING):
        number = place((*at, strategy), lengths)
        amounts, low, high = numbers_of(table.amounts, number, len(LOADING_GROUPS))
        digit = int(table.verdicts[number])
        word = f", {HOST_WORDS[digit]}" if HOST_WORDS[digit] else ""
        text = f"{memory(sum(amounts))}{word}"
        found.append(Bar(loading, STRATEGIES[loading], amounts, low, high, text, HOST_KINDS[digit]))
    room = table.usable_bytes
    if not 0 < room <= FARTHEST * max(bar.high_bytes for bar in found):
        return found, None
    return found, Limit(room, f"{table.machine}, {memory(room)}")


def numbers_of(
    amounts: tuple[int, ...], number: int, groups: int
) -> tuple[tuple[int, ...], int, int]:
    """Return the bytes of each group and the bounds of the total, of a case by its number."""
    *each, low, high = amounts[number * (groups + 2) : (number + 1) * (groups + 2)]
    return tuple(each), low, high


def disk_chart(found: FullBill) -> str:
    """Return the bytes of the dataset by kind of file, and of checkpoints; "" for neither."""
    rows = []
    if found.disk is not None:
        lines = found.disk.bill.lines
        rows += [Row(line.name, (line.n_bytes,), size(line.n_bytes)) for line in lines]
    if found.of_model is not None:
        n_bytes = found.of_model.checkpoints.high_bytes
        rows.append(Row("checkpoints", (n_bytes,), f"up to {size(n_bytes)}"))
    if not rows:
        return ""
    free = found.disk.free_bytes if found.disk else None
    largest = max(row.values[0] for row in rows)
    near = free is not None and free <= FARTHEST * largest
    chart = Chart(
        "bill-disk", "Disk by kind of file",
        "A bar for each kind of file of the dataset, and for the checkpoints of training.",
        ("on disk",), "files", size, (1,),
    )  # fmt: skip
    line = Line(free, f"{size(free)} free") if free is not None and near else None
    return plain_bars(chart, rows, line=line)


def own_text(found: FullBill, part: str, name: str) -> str:
    """Return what `tokmill report` says in the row `name` of a part, and in the rows below it."""
    texts: list[str] = []
    inside = False
    for row in summary_rows(found, {part}):
        inside = row.label == name or (inside and not row.label)
        if inside:
            texts.append(row.text)
    return "; ".join(texts)


def own_rows(found: FullBill, part: str, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return rows of `tokmill report` that have one of some names, as (name, text)."""
    wanted = set(names)
    return [(row.label, row.text) for row in summary_rows(found, {part}) if row.label in wanted]
