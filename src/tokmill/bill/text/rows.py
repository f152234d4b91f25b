"""The tables of a bill as rows: the terminal draws them as columns, the page as bars.

Amounts have names, bounds and formulas; other tables have texts. Words and colours of verdicts, and
the kinds of amounts on a GPU, stand here too: each face takes them from one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokmill.bill.compute import Compute
from tokmill.bill.formula import Bill, Line
from tokmill.bill.full_bill import FullBill, ModelBill
from tokmill.bill.gpus import AT_LEAST, BARELY, DOES_NOT_FIT, FITS
from tokmill.bill.host_ram.host import HostBill
from tokmill.bill.models.model import Model
from tokmill.bill.on_disk import DatasetDisk
from tokmill.bill.overhead import FRAGMENTATION, OUTSIDE, WORKSPACES
from tokmill.bill.remedies.search import Offer
from tokmill.bill.states.optimizers import STATES
from tokmill.bill.states.states import GRADIENTS, REFERENCE, UNSHARED, WEIGHTS
from tokmill.words import amount, memory, plural, size

_MOMENTS = {
    "end of forward": "end of the forward pass",
    "start of backward": "start of the backward pass",
    "end of backward": "end of the backward pass",
    "optimizer's step": "optimizer step",
}
"""Longer names of moments."""


def moment(bill: Bill) -> str:
    """Return the moment in a bill's title, which follows the place."""
    name = bill.title.partition(": ")[2]
    return _MOMENTS.get(name, name)


class VerdictWords(NamedTuple):
    """A verdict as each face says it: in the row of a comparison, in a cell, on the page."""

    row: str
    cell: str
    page: str
    colour: str


VERDICTS = {
    FITS: VerdictWords("fits", "yes", FITS, "green"),
    BARELY: VerdictWords("may fit", "may", "by the estimate only", "yellow"),
    AT_LEAST: VerdictWords("a part is not known", "at least", AT_LEAST, "yellow"),
    DOES_NOT_FIT: VerdictWords("does not fit", "no", DOES_NOT_FIT, "red"),
}
"""Verdicts, the best first."""

_GROUPS: Mapping[str, str] = {
    **dict.fromkeys((WEIGHTS.name, REFERENCE.name), "weights"),
    **dict.fromkeys((GRADIENTS.name, UNSHARED.name), "gradients"),
    **dict.fromkeys(STATES, "optimizer states"),
    **dict.fromkeys((*OUTSIDE, WORKSPACES.name, FRAGMENTATION.name), "CUDA and fragmentation"),
}
"""The group of a line by its name; others are activations if they grow with a batch's tokens."""
_ACTIVATIONS, _OTHERS = "activations and logits", "temporary and buffers"
GROUPS = tuple(dict.fromkeys((*_GROUPS.values(), _ACTIVATIONS, _OTHERS)))


def by_group(bill: Bill) -> tuple[int, ...]:
    """Return the expected bytes of each of `GROUPS`."""
    amounts = dict.fromkeys(GROUPS, 0)
    for line in bill.lines:
        default = _ACTIVATIONS if "n" in line.symbols else _OTHERS
        amounts[_GROUPS.get(line.name, default)] += line.n_bytes
    return tuple(amounts.values())


@dataclass(frozen=True, slots=True)
class Amounts:
    """Named amounts of bytes with bounds.

    Attributes:
        parts: the parts of a bill, of which each shows the table.
        title: place and moment, or what is on the disk.
        rows: names and amounts.
        total: their sum, if they add up.
        binary: the units are of 1,024 (memory), else of 1,000 (disk).
        leaves_out: what has no amount.
        lines: the amounts that have formulas.
    """

    parts: tuple[str, ...]
    title: str
    rows: tuple[tuple[str, Line | Bill], ...]
    total: Bill | None = None
    binary: bool = True
    leaves_out: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Texts:
    """Named texts, in columns with `headings`; those in `words` hold text, others figures."""

    parts: tuple[str, ...]
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...] = ()


def tables_of(full: FullBill) -> Iterator[Amounts | Texts]:
    """Yield the tables of all parts of a bill, in the order in which they are shown."""
    of_model = full.of_model
    if of_model is not None:
        yield _parameters(of_model.model)
        yield from gpu_tables(of_model)
    yield from host_tables(full.host)
    yield from disk_tables(full)
    if of_model is None:
        return
    if of_model.compute is not None:
        rows = _time_rows(of_model.compute, full.settings.training.epochs)
        yield Texts(("time",), "training", ("",), tuple(rows), words=("",))
    yield inference_table(of_model)


def of_bill(part: str, bill: Bill, title: str = "", *, binary: bool = True) -> Amounts:
    """Return the lines of a bill and their sum."""
    rows = tuple((line.name, line) for line in bill.lines)
    return Amounts(
        (part,), title or bill.title, rows, bill, binary, bill.leaves_out, lines=bill.lines
    )


def of_moments(part: str, title: str, bills: Iterable[Bill]) -> Amounts:
    """Return the totals of bills by their moment."""
    return Amounts((part,), title, tuple((moment(bill), bill) for bill in bills))


def _parameters(model: Model) -> Texts:
    modules = [(name, f"{n:,}") for name, n in model.by_module().items()]
    rows = (*modules, ("total", f"{model.parameters:,}"))
    return Texts(("gpu", "inference"), "parameters", ("",), rows)


def gpu_tables(of_model: ModelBill) -> Iterator[Amounts | Texts]:
    """Yield the tables of training: peak, moments, pipeline stages, savings."""
    training = of_model.training
    peak = training.peak
    yield of_bill("gpu", peak, f"GPU memory at the peak, {moment(peak)}")
    yield of_moments("gpu", "GPU memory at each moment of a training step", training.moments)
    if len(training.stages) > 1:
        stages = tuple(
            (f"{each.number + 1:,}: {moment(each.peak)}", each.peak) for each in training.stages
        )
        yield Amounts(("gpu",), "GPU memory at the peak of pipeline stages", stages)
    if of_model.advice is not None and of_model.advice.steps:
        yield _offers(of_model.advice.steps)


def _offers(offers: Sequence[Offer]) -> Texts:
    """Return a row for each saving: its options, memory and verdict."""
    short = {FITS: "fits", BARELY: "may fit", AT_LEAST: "at least"}
    rows = tuple(
        (
            " ".join(offer.options),
            memory(offer.saved_bytes),
            memory(offer.peak_bytes),
            short.get(offer.verdict, ""),
        )
        for offer in offers
    )
    return Texts(("gpu",), "options that save memory", ("saves", "peak", ""), rows)


def inference_table(of_model: ModelBill) -> Amounts:
    """Return the memory of a GPU that serves."""
    return of_bill("inference", of_model.inference)


def host_tables(host: HostBill) -> Iterator[Amounts]:
    """Yield the tables of host RAM: peak, moments, /dev/shm, page cache."""
    yield of_bill("host", host.peak, f"host RAM per node at the peak, {moment(host.peak)}")
    yield of_moments("host", "host RAM at each moment", host.moments)
    for bill in (host.shared, host.page_cache):
        if bill.n_bytes:
            yield of_bill("host", bill)


def disk_tables(full: FullBill) -> Iterator[Amounts | Texts]:
    """Yield the sizes of dataset, checkpoints and optional files."""
    disk = full.disk
    if disk is not None:
        yield of_bill("disk", disk.bill, binary=False)
    if full.of_model is not None:
        yield of_bill("disk", full.of_model.checkpoints, binary=False)
    if disk is None:
        return
    if disk.found is not None:
        yield Texts(("disk",), "totals", ("",), tuple(_ratios(disk.found)), words=("",))
    rows = tuple((f"{line.name}: {line.note}".removesuffix(": "), line) for line in full.additions)
    yield Amounts(
        ("disk",), "disk: optional files", rows, binary=False, lines=tuple(full.additions)
    )


def _ratios(disk: DatasetDisk) -> Iterator[tuple[str, str]]:
    """Yield the size per token, relative to text and input, and files that are not listed."""
    n_bytes = disk.bill.n_bytes
    yield ("bytes per token", f"{n_bytes / max(1, disk.tokens):.3f} ({disk.dtype})")
    of = {"size relative to the text": disk.text_bytes, "relative to the input": disk.input_bytes}
    for name, total in of.items():
        if total:
            yield (name, f"{n_bytes / total:.1%} of {size(total)}")
    if disk.unlisted:
        yield ("files not in the manifest", ", ".join(disk.unlisted))


def _time_rows(compute: Compute, epochs: float) -> Iterator[tuple[str, str]]:
    """Yield tokens per parameter, steps and FLOP; the summary has the time."""
    yield (
        "tokens per parameter",
        f"{compute.tokens_per_parameter:.3g} (compute-optimal is about 20: "
        f"{amount(compute.chinchilla_tokens, 'token')})",
    )
    yield (
        "steps per epoch",
        f"{compute.steps_per_epoch:,} of {plural(compute.step_sequences, 'sequence')}, "
        f"{amount(compute.step_tokens, 'token')}",
    )
    passes = "epoch" if epochs == 1 else "epochs"
    yield ("FLOP", f"{compute.operations_with_recompute:.3g} in {epochs:g} {passes}")
