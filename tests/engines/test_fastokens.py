from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tokmill.engines.reference import TokenizersReference
from tokmill.engines.trial.hostile_texts import hostile_texts

pytest.importorskip("fastokens")

from tokmill.engines.fastokens import Fastokens


@pytest.mark.parametrize("parse", [False, True])
def test_ids_and_offsets_are_those_of_the_reference(tokenizer, parse):
    text = pa.array(hostile_texts(["<eos>", "<tool>"]), pa.large_string())
    batch = Fastokens(tokenizer, parse=parse).encode(text)
    expected = TokenizersReference(tokenizer, parse=parse).encode(text)
    assert batch.ids.tolist() == expected.ids.tolist()
    assert batch.offsets.tolist() == expected.offsets.tolist()
    assert batch.offsets.dtype == np.int64


def test_its_caches_have_their_own_limit():
    assert Fastokens.renewable is False
