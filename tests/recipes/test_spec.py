from __future__ import annotations

import dataclasses
import pickle

import pytest

from tokmill.recipes.spec import Increments
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


def test_spec_part_and_progress_can_be_pickled(plan):
    spec, part = pickle.loads(pickle.dumps((plan.spec, plan.parts[1])))
    assert (spec, part) == (plan.spec, plan.parts[1])
    assert part.fingerprint(spec) == plan.parts[1].fingerprint(plan.spec)
    progress = Increments(records=1, rejects={"a": 1})
    assert pickle.loads(pickle.dumps(progress)) == progress


def test_parts_of_one_run_have_different_fingerprints(plan):
    assert len({part.fingerprint(plan.spec) for part in plan.parts}) == len(plan.parts) == 2


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


def test_another_file_has_another_fingerprint(plan):
    (piece,) = plan.parts[0].slices
    for field, value in [("path", "b"), ("n_bytes", 5), ("mtime_ns", 5), ("stamp", "b")]:
        file = dataclasses.replace(piece.file, **{field: value})
        other = dataclasses.replace(plan.parts[0], slices=(dataclasses.replace(piece, file=file),))
        assert other.fingerprint(plan.spec) != plan.parts[0].fingerprint(plan.spec), field


def test_another_tokenizer_has_another_fingerprint(plan):
    spec = dataclasses.replace(
        plan.spec, tokenizer=dataclasses.replace(plan.spec.tokenizer, sha256="0" * 64)
    )
    assert plan.parts[0].fingerprint(spec) != plan.parts[0].fingerprint(plan.spec)
