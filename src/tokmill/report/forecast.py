"""What a planned run says, as (label, text) rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokmill.report.summary import describe_engine
from tokmill.report.units import count, seconds, size

if TYPE_CHECKING:
    from typing import Any

    from tokmill.report.summary import Rows


def forecast_rows(forecast: Any, spec: Any, n_files: int, free_bytes: int) -> Rows:
    """Give a forecast, one row a fact."""
    fits = "" if forecast.disk_bytes < free_bytes else ": TOO LITTLE"
    sampled = f"{size(forecast.sampled_bytes)} of {size(forecast.input_bytes)}"
    if forecast.heads_only:
        sampled += ", at the heads of files that cannot be read from the middle"
    tokenizer = spec.tokenizer
    return [
        ("input", f"{n_files:,} files, {size(forecast.input_bytes)}, in {forecast.parts:,} parts"),
        ("sampled", sampled),
        ("renderer", spec.config.render.renderer),
        ("tokenizer", f"{tokenizer.name}, eos {tokenizer.eos.content} = {tokenizer.eos.id}"),
        ("engine", describe_engine(spec.engine.as_json())),
        ("documents", f"about {count(forecast.documents)}"),
        ("tokens", f"about {count(forecast.tokens)}, eos included"),
        (
            "on disk",
            f"about {size(forecast.disk_bytes)} as {spec.config.output.dtype}; "
            f"{size(free_bytes)} free{fits}",
        ),
        ("time", f"about {seconds(forecast.time_s)}"),
        ("memory", f"up to {size(forecast.memory_bytes)}"),
        ("rejects", f"{forecast.reject_fraction:.2%} of the sampled records"),
    ]
