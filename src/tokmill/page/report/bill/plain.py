"""The tables of the bill as plain values, for the script of the page."""

from __future__ import annotations

import shlex
from typing import Any

from tokmill.bill.inputs import model_notes, stored_notes, training_notes
from tokmill.page.report.bill.axes import spread_training
from tokmill.page.report.bill.chart import FITS_KINDS, FITS_WORDS, NO_AMOUNT
from tokmill.page.report.bill.groups import LOADING_GROUPS, SERVING_GROUPS, TRAINING_GROUPS
from tokmill.page.report.bill.others import (
    FARTHEST,
    HOST_KINDS,
    HOST_WORDS,
    NO_CONTEXT,
)
from tokmill.page.report.bill.tables import Loading, Serving
from tokmill.page.report.bill.words import (
    AS_SET,
    NONE_ALONE,
    NONE_NEEDED,
    NOT_ALL,
    View,
    spread_options,
)


def plain_data(view: View, serving: Serving, loading: Loading | None) -> dict[str, Any]:
    """Return every case and text that the script needs; amounts are in bytes."""
    return {
        "start": view.axes.start,
        "groups": TRAINING_GROUPS,
        "command": view.command,
        "trained": view.trained,
        "speed": view.speed,
        **_choices(view),
        "words": {
            "fits": FITS_WORDS, "kinds": FITS_KINDS, "impossible": NO_AMOUNT,
            "none_alone": NONE_ALONE, "none_needed": NONE_NEEDED,
            "missing": NOT_ALL, "no_context": NO_CONTEXT, "host": HOST_WORDS,
            "host_kinds": HOST_KINDS,
        },
        "cases": view.cases.data(),
        "serving": {**serving.data(), "groups": SERVING_GROUPS},
        "loading": None if loading is None else {
            **loading.data(), "groups": LOADING_GROUPS, "farthest": FARTHEST,
            "machine": loading.machine,
        },
    }  # fmt: skip


def _choices(view: View) -> dict[str, Any]:
    axes = view.axes
    return {
        "models": [
            {
                "name": each.model.name,
                "options": " ".join(each.options),
                "positions": each.model.positions,
                "notes": [
                    list(model_notes(each.model, sequence=n, context=0, ids=view.vocabulary))
                    for n in axes.sequences
                ],
                "warnings": each.model.warnings,
                "stored": [
                    list(stored_notes(each.model, spread_training(axes.training, spread)))
                    for spread in axes.spreads
                ],
            }
            for each in axes.models
        ],
        "gpus": [
            {"name": gpu.name, "bytes": gpu.memory_bytes, "options": f"--gpu {shlex.quote(name)}"}
            for gpu, name in zip(axes.gpus, axes.gpu_names, strict=True)
        ],
        "spreads": [
            {
                "label": each.label,
                "gpus": each.gpus,
                "sharding": each.sharding,
                "options": " ".join(spread_options(axes, at)),
                "notes": [
                    list(training_notes(spread_training(axes.training, each), gpu))
                    for gpu in axes.gpus
                ],
            }
            for at, each in enumerate(axes.spreads)
        ],
        "batches": axes.batches,
        "sequences": axes.sequences,
        "rows": [AS_SET, *(name for name, _ in axes.remedies)],
    }
