from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.engines.trial.candidate import Loading, Parity, Texts
from tokmill.engines.trial.fingerprints import fingerprints
from tokmill.engines.trial.here import HereCandidate


def parity(tokenizer, *, skew=0) -> Parity:
    texts = ["hello", "the cat"]
    reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    batch = reference.encode(pa.array(texts, pa.large_string()))
    ids = [batch.ids[a:b] + skew for a, b in zip(batch.offsets, batch.offsets[1:], strict=False)]
    return Parity(texts, ids)


def test_it_answers_as_a_child_does(tokenizer):
    with HereCandidate(Loading(REFERENCE, tokenizer, "text", 1)) as found:
        found.begin(parity(tokenizer))
        assert found.result() == {}
        found.begin(parity(tokenizer, skew=1))
        assert list(found.result()["differences"]) == [0, 1]
        found.begin(Texts(["hello"]))
        reference = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
        assert found.fingerprints().tolist() == fingerprints(reference, ["hello"]).tolist()
    assert found.refused == ""


@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_that_cannot_load_the_tokenizer_says_why(tokenizer, name):
    if not is_installed(name):
        pytest.skip(f"{name} has no wheel here")
    model = dataclasses.replace(tokenizer, json="")
    with HereCandidate(Loading(name, model, "text", 1)) as found:
        found.begin(parity(tokenizer))
        assert (found.result(), len(found.fingerprints())) == ({}, 0)
        assert found.refused.endswith("no tokenizer.json says the same")


def test_what_is_no_panic_of_native_code_is_not_hidden(tokenizer):
    with (
        HereCandidate(Loading(REFERENCE, tokenizer, "text", 1)) as found,
        pytest.raises(TypeError),
    ):
        found.begin(Parity([object()], [np.zeros(1, np.uint32)]))
