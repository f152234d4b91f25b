"""How even the batches of ranks are that train on a dataset: a line of its report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.bill.states.parallel import data_parallel
from tokmill.errors import TokmillError
from tokmill.urls import store_url
from tokmill.words import plural

if TYPE_CHECKING:
    from pathlib import Path

    from tokmill.bill.full_bill import FullBill
    from tokmill.dataset.manifest import Manifest
    from tokmill.loader.source import RowSource

N_BATCHES = 20
"""Global batches that are looked at."""


def balance_rows(directory: Path, manifest: Manifest, bill: FullBill) -> list[tuple[str, str]]:
    """Return what ranks wait for each other, in order and dealt; [] where nobody waits or knows.

    Rows are the packs of the dataset if they have the length of the bill, else windows of it.
    """
    training = bill.settings.training
    world, rows = data_parallel(training), training.micro_batch
    if world < 2 or store_url(directory):
        return []
    # A report of one GPU, the most frequent one, needs no loader.
    from tokmill.loader import AttentionCost, Loader, packs, windows

    packed = manifest.packs.get("train")
    try:
        cost = AttentionCost()
        if bill.settings.model.name:
            cost = AttentionCost.of_model(bill.settings.model.name)
        if packed is not None and packed.capacity == training.sequence:
            kind = "packs"
            source: RowSource = packs(directory, shift=True)
        else:
            kind = "windows"
            source = windows(directory, training.sequence, shift=True, cu_seqlens=True)
        loader = Loader(source, rows, world=world, micro_batches=training.accumulation)
        found = loader.balance(cost, N_BATCHES)
    except TokmillError:  # too few rows for a step, or no split to train on
        return []
    ranks = f"{plural(world, 'rank')} of {plural(rows, 'row')}"
    text = (
        f"{ranks} wait for the slowest: a step takes {found.before:.3f} times as long as with "
        f"equal batches; {found.after:.3f} times if the loader balances {kind} of "
        f"{plural(training.sequence, 'token')}"
    )
    return [("attention cost", text)]
