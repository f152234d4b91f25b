"""The forecast of a run: its tokens, disk, time and memory, predicted from a sample."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from tokmill.words import rows_html, rows_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokmill.bill.full_bill import FullBill
    from tokmill.errors import TokmillError
    from tokmill.settings.schema import Config


@dataclass(frozen=True, slots=True)
class RunForecast:
    """The predicted amounts of a run.

    Amounts with a `_low` and a `_high` lie between the two; all three are equal if `is_counted`:
    the input was small enough to be read to its end.

    Attributes:
        kind: `pretrain` or `sft`.
        files: input files.
        parts: parts of the plan, the most worker processes that can help.
        part_bytes: input of the largest part.
        input_bytes: size of the input, as it is stored.
        sampled_bytes: input that was read for this forecast.
        is_counted: whether that was all of it.
        documents: documents or samples.
        documents_low: least value of `documents`.
        documents_high: upper value of `documents`.
        tokens: tokens, eos included.
        tokens_low: least value of `tokens`.
        tokens_high: upper value of `tokens`.
        text_bytes: rendered text in UTF-8.
        disk_bytes: size of the dataset.
        disk_low_bytes: least value of `disk_bytes`.
        disk_high_bytes: upper value of `disk_bytes`.
        free_bytes: free space where the output is to stand, or in the current directory.
        time_s: wall time in seconds, with the comparison of the engines.
        time_high_s: upper value of `time_s`.
        memory_bytes: bound on the peak of memory, all processes together.
        usable_memory_bytes: what this machine, or its cgroup, leaves to the run.
        reject_fraction: share of records that are rejected.
        drop_fraction: share of records that a setting leaves out.
        dtype: type of the ids, `uint16` or `uint32`.
        tokenizer: name of the tokenizer.
        renderer: how records become text.
        engine: name of the engine that encodes.
        values: all of this and more, as `tokmill plan --json` prints it.
        bill: what training on the dataset takes; see `tokmill.bill.of`.
        problem: the error with which the run would stop; None if none is expected.
    """

    kind: str
    files: int
    parts: int
    part_bytes: int
    input_bytes: int
    sampled_bytes: int
    is_counted: bool
    documents: int
    documents_low: int
    documents_high: int
    tokens: int
    tokens_low: int
    tokens_high: int
    text_bytes: int
    disk_bytes: int
    disk_low_bytes: int
    disk_high_bytes: int
    free_bytes: int
    time_s: float
    time_high_s: float
    memory_bytes: int
    usable_memory_bytes: int
    reject_fraction: float
    drop_fraction: float
    dtype: str
    tokenizer: str
    renderer: str
    engine: str
    values: dict[str, Any] = field(repr=False)
    bill: FullBill = field(repr=False)
    problem: TokmillError | None = None

    def __str__(self) -> str:
        """Return the rows that `tokmill plan` prints."""
        return rows_text(self._rows())

    def _repr_html_(self) -> str:
        return rows_html(self._rows())

    def _rows(self) -> list[tuple[str, str]]:
        from tokmill.inspect.summary import forecast_rows

        return forecast_rows(self.values, self.free_bytes)


def forecast(
    config: Config, warn: Callable[[str], None], note: Callable[[str], None]
) -> RunForecast:
    """Forecast a run from a sample of its input; write nothing.

    `warn` gets lines about what may go wrong, `note` lines about what may surprise.

    Raises:
        TokmillError: the run could not start, or nothing can be predicted from the sample.
    """
    from tokmill.bill.bill_settings import BillSettings
    from tokmill.bill.full_bill import full_bill
    from tokmill.bill.inputs import complete_inputs
    from tokmill.run.forecast import forecast_run

    predicted = forecast_run(config, warn, note)
    bill = full_bill(complete_inputs(BillSettings.of(config), predicted.on_disk))
    values = {**predicted.values, "bill": bill.as_json()}
    every = {
        **values,
        "disk_low_bytes": values["disk"]["low_bytes"],
        "disk_high_bytes": values["disk"]["high_bytes"],
        "free_bytes": predicted.on_disk.free_bytes,
        "engine": values["engine"]["name"],
        "values": values,
        "bill": bill,
        "problem": predicted.problem,
    }
    return RunForecast(**{field.name: every[field.name] for field in fields(RunForecast)})
