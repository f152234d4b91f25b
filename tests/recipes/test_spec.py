from __future__ import annotations

import dataclasses

import pytest

from tokmill.run.plan import Plan


@pytest.fixture
def plan(tmp_path, configure, plan_of, write_rows) -> Plan:
    source = write_rows(tmp_path / "a.jsonl", [{"text": f"hello {i}"} for i in range(9)])
    return plan_of(configure(tmp_path / "out", source, part_bytes=100))


def with_settings(plan: Plan, section: str, **values) -> Plan:
    config = plan.spec.config
    changed = dataclasses.replace(getattr(config, section), **values)
    spec = dataclasses.replace(plan.spec, config=dataclasses.replace(config, **{section: changed}))
    return dataclasses.replace(plan, spec=spec)


def test_settings_that_decide_bytes_change_the_fingerprint_and_no_others_do(plan):
    before = plan.parts[0].fingerprint(plan.spec)
    for section, values in [
        ("output", {"shard_tokens": 7}),
        ("output", {"val_fraction": 0.5}),
        ("output", {"dtype": "uint32"}),
        ("limits", {"min_tokens": 1}),
        ("limits", {"max_tokens": 1}),
        ("render", {"renderer": "encyclopedia:separator=|"}),
        ("render", {"renderer": "encyclopedia"}),
        ("tokenizer", {"control_tokens_in_text": "parse"}),
        ("input", {"max_record_bytes": 5}),
    ]:
        changed = with_settings(plan, section, **values).spec
        assert plan.parts[0].fingerprint(changed) != before, values
    for section, values in [
        ("output", {"dir": "/elsewhere"}),
        ("limits", {"on_error": "fail"}),
        ("limits", {"max_reject_fraction": 1.0}),
        ("run", {"workers": 7, "threads": 7, "block_bytes": 7, "engine": "gigatoken"}),
        ("tokenizer", {"path": "/elsewhere/tokenizer.json"}),
    ]:
        changed = with_settings(plan, section, **values).spec
        assert plan.parts[0].fingerprint(changed) == before, values
