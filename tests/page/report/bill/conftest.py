"""Sections of the bill, and the cases that they have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tokmill.bill.bill_settings import bill_settings
from tokmill.bill.full_bill import FullBill, full_bill
from tokmill.bill.host_ram.machine import Machine
from tokmill.bill.inputs import complete_inputs
from tokmill.bill.on_disk import on_disk
from tokmill.dataset.reader import read_manifest
from tokmill.page.report.bill.axes import Axes, axes_of
from tokmill.page.report.bill.cases import Cases, cases_of
from tokmill.page.report.bill.words import View, view_of

MACHINE = Machine(memory_bytes=64 << 30, available_bytes=60 << 30)
FREE_BYTES = 1 << 40
"""Of the disk: what is free where the tests run must not decide a verdict."""


@dataclass(frozen=True)
class Made:
    """The bill of a dataset with settings, and its view."""

    directory: Path
    manifest: dict[str, Any]
    bill: FullBill
    view: View

    @property
    def axes(self) -> Axes:
        return self.view.axes

    @property
    def cases(self) -> Cases:
        return self.view.cases


def only_own(axes: Axes) -> Axes:
    model, gpu, spread, batch, sequence = axes.start
    return replace(
        axes,
        models=axes.models[model : model + 1],
        batches=axes.batches[batch : batch + 1],
        sequences=axes.sequences[sequence : sequence + 1],
        start=(0, gpu, spread, 0, 0),
    )


@pytest.fixture(scope="session")
def made() -> Callable[..., Made]:
    """Make the view of a dataset; `settings` are those of the sections [model] and [training].

    `small`: of models, batches and sequences only those of the settings.
    """

    def make(directory: Path, *, small: bool = False, **settings: dict[str, Any]) -> Made:
        manifest = read_manifest(directory)
        disk = replace(on_disk(directory, manifest), free_bytes=FREE_BYTES)
        asked = bill_settings(manifest["config"], None, None, settings)
        bill = full_bill(complete_inputs(asked, disk, MACHINE))
        model = bill.of_model.model if bill.of_model else None
        size = bill.disk.size
        axes = axes_of(bill.settings, model, size.vocabulary)
        axes = only_own(axes) if small else axes
        recorded = manifest["config"].get("training") or {}
        named = (str(directory), recorded)
        view = view_of(axes, cases_of(axes, size), size, bill.settings, named)
        return Made(directory, manifest, bill, view)

    return make


@pytest.fixture(scope="session")
def llama(made: Callable[..., Made], pretrained: Any) -> Made:
    """A model and a GPU that the settings name."""
    training = {"gpu": "RTX 4090", "micro_batch": 2, "price_per_hour": 0.5, "sequence": 1024}
    return made(pretrained.directory, model={"name": "llama-3.2-1b"}, training=training)


@pytest.fixture(scope="session")
def unnamed(made: Callable[..., Made], pretrained: Any) -> Made:
    """Settings that name neither a model nor a GPU."""
    return made(pretrained.directory)
