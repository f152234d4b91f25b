from __future__ import annotations

from types import SimpleNamespace

import pytest

from tokmill.config import Config, OutputSettings, RenderSettings
from tokmill.encode.choose import EngineChoice
from tokmill.report.forecast import forecast_rows

FORECAST = {
    "input_bytes": 10_000_000_000,
    "sampled_bytes": 16_000_000,
    "heads_only": False,
    "parts": 10,
    "documents": 12_345,
    "tokens": 2_500_000_000,
    "disk_bytes": 5_000_000_000,
    "time_s": 61.0,
    "memory_bytes": 800_000_000,
    "reject_fraction": 0.0012,
}

CONFIG = Config(render=RenderSettings("text"), output=OutputSettings(dtype="uint16"))


def rows(tokenizer, free_bytes: int = 10**12, **changes) -> dict[str, str]:
    spec = SimpleNamespace(
        config=CONFIG, tokenizer=tokenizer, engine=EngineChoice("tokenizers", "0.22", "asked for")
    )
    return dict(forecast_rows(SimpleNamespace(**{**FORECAST, **changes}), spec, 3, free_bytes))


def test_a_forecast_says_every_fact_once(tokenizer):
    assert rows(tokenizer) == {
        "input": "3 files, 10 GB, in 10 parts",
        "sampled": "16 MB of 10 GB",
        "renderer": "text",
        "tokenizer": f"{tokenizer.name}, eos <eos> = 0",
        "engine": "tokenizers 0.22 (asked for)",
        "documents": "about 12,345",
        "tokens": "about 2.5 billion, eos included",
        "on disk": "about 5 GB as uint16; 1 TB free",
        "time": "about 1 min 01 s",
        "memory": "up to 800 MB",
        "rejects": "0.12% of the sampled records",
    }


@pytest.mark.parametrize("free_bytes", [4_999_999_999, 5_000_000_000])
def test_a_disk_that_is_too_small_is_said_aloud(tokenizer, free_bytes):
    assert rows(tokenizer, free_bytes)["on disk"] == ("about 5 GB as uint16; 5 GB free: TOO LITTLE")


def test_a_sample_of_heads_alone_says_so(tokenizer):
    assert rows(tokenizer, heads_only=True)["sampled"] == (
        "16 MB of 10 GB, at the heads of files that cannot be read from the middle"
    )
