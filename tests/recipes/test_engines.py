"""The engine of a run: loaded once, routed only where it differs."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from tokmill.engines.added_tokens import for_engine
from tokmill.engines.choice import CharacterComparison
from tokmill.engines.engine import REFERENCE
from tokmill.engines.loaded import EngineMemory
from tokmill.engines.routing import CharacterSet
from tokmill.recipes.engines import make_engine, reference_loader
from tokmill.timing import StageTimer

TEXT = pa.array(["hello", "\u088f"], pa.large_string())


@pytest.fixture
def spec(tmp_path, configure, plan_of, write_rows):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello"}])
    return plan_of(configure(tmp_path / "out", source, engine="fastokens")).spec


def engine_of(spec):
    return make_engine(spec, spec.tokenizer, spec.engine, EngineMemory(1 << 30))


def test_an_engine_that_was_compared_before_the_run_is_not_loaded_again(spec, loads):
    settings = {"control_in_text": "text", "n_threads": spec.n_threads}
    tokenizer = for_engine(spec.tokenizer, spec.engine.added)
    compared = spec.engines.load(spec.engine.name, tokenizer, **settings)
    assert engine_of(spec).encode(TEXT, StageTimer()).ids.tolist()
    assert spec.engines.load(spec.engine.name, tokenizer, **settings) is compared
    assert loads == ["fastokens"]


def test_the_reference_is_loaded_once_for_all_its_users_in_a_process(spec, loads):
    first, second = (reference_loader(spec, spec.tokenizer) for _ in range(2))
    assert first() is second()
    assert loads == [REFERENCE]


@pytest.mark.parametrize(("differs", "n_routed"), [((), None), ((0x88F,), 1)])
def test_only_an_engine_that_differs_somewhere_routes(spec, loads, differs, n_routed):
    scan = CharacterComparison(CharacterSet.of(list(differs)))
    spec = replace(spec, engine=replace(spec.engine, scan=scan))
    routed = engine_of(spec).encode(TEXT, StageTimer()).routed
    assert (None if routed is None else len(routed)) == n_routed
    assert (REFERENCE in loads) == bool(differs)


def test_a_worker_process_gets_the_run_without_engines(spec, loads):
    reference_loader(spec, spec.tokenizer)()
    copy = pickle.loads(pickle.dumps(spec))
    assert copy == spec
    reference_loader(copy, copy.tokenizer)()
    assert loads == [REFERENCE] * 2
