from __future__ import annotations

import pytest

from tokmill.inspect.summary import forecast_rows

PLAN = {
    "schema": 1,
    "files": 3,
    "input_bytes": 10_000_000_000,
    "sampled_bytes": 16_000_000,
    "heads_only": False,
    "is_counted": False,
    "parts": 10,
    "part_bytes": 1_000_000_000,
    "documents": 12_345,
    "documents_low": 12_000,
    "documents_high": 12_700,
    "tokens": 2_500_000_000,
    "tokens_low": 2_400_000_000,
    "tokens_high": 2_600_000_000,
    "disk_bytes": 5_000_000_000,
    "disk": {"low_bytes": 4_800_000_000, "high_bytes": 5_200_000_000},
    "time_s": 61.0,
    "time_high_s": 125.0,
    "memory_bytes": 800_000_000,
    "usable_memory_bytes": 4_000_000_000,
    "workers": 1,
    "threads": 2,
    "reject_fraction": 0.0012,
    "max_reject_fraction": 0.01,
    "has_too_many_rejects": False,
    "counters": {},
    "unknown": "",
    "encoded_documents": 100,
    "can_separate": False,
    "drop_fraction": 0.0,
    "renderer": "text",
    "tokenizer": "my_tokenizer",
    "eos": {"id": 2, "token": "</s>"},
    "dtype": "uint16",
    "engine": {
        "name": "reference",
        "version": "tokenizers 0.22",
        "reason": "asked for",
        "n_checked": 0,
        "mb_per_s": {},
        "refused": {},
    },
}


def rows(free_bytes: int = 10**12, **changes) -> dict[str, str]:
    return dict(forecast_rows({**PLAN, **changes}, free_bytes))


def test_a_forecast_says_every_fact_once():
    assert rows() == {
        "input": "3 files, 10 GB, in 10 parts of up to 1 GB; sampled 16 MB",
        "renderer": "text",
        "tokenizer": "my_tokenizer, eos </s> = 2",
        "engine": "reference: tokenizers 0.22",
        "documents": "about 12,345 (12,000 to 12,700)",
        "tokens": "about 2.5 billion (2.4 billion to 2.6 billion), eos included",
        "on disk": "about 5 GB (4.8 GB to 5.2 GB) as uint16; 1 TB free",
        "time": "about 1 min 01 s, at most 2 min 05 s",
        "memory": "up to 800 MB with 2 threads; 4 GB usable",
        "rejects": "0.12% of the sampled records",
    }


@pytest.mark.parametrize("free_bytes", [4_999_999_999, 5_000_000_000])
def test_a_disk_that_is_too_small_is_said_aloud(free_bytes):
    assert rows(free_bytes)["on disk"] == (
        "about 5 GB (4.8 GB to 5.2 GB) as uint16; 5 GB free: TOO LITTLE"
    )


def test_what_was_counted_is_said_without_a_band():
    counted = rows(is_counted=True, tokens=75_123, drop_fraction=0.05)
    assert counted["input"] == "3 files, 10 GB, in 10 parts of up to 1 GB; read completely"
    assert counted["documents"] == "12,345; 5.00% of the records dropped"
    assert counted["tokens"] == "75,123, eos included"
    assert counted["rejects"] == "0.12% of the records"


def test_a_plan_of_more_memory_than_there_is_says_what_to_lower():
    assert rows(memory_bytes=4_100_000_000)["memory"] == (
        "up to 4.1 GB with 2 threads; 4 GB usable: TOO LITTLE; "
        "lower --workers, --threads or run.engine_memory_bytes"
    )


def test_a_plan_says_what_will_run():
    assert rows(workers=10, threads=6)["memory"].startswith("up to 800 MB with 10 workers of 6 ")
    assert rows(threads=1)["memory"] == "up to 800 MB with 1 thread; 4 GB usable"


def test_a_sample_of_heads_alone_says_so():
    assert rows(heads_only=True)["input"].endswith(
        "; sampled 16 MB, of some files only the beginning"
    )
