from __future__ import annotations

import tokmill.engines.trial.fingerprints as module
from tokmill.engines.engine import REFERENCE, load_engine
from tokmill.engines.trial.fingerprints import fingerprints


def test_equal_ids_have_equal_fingerprints_and_others_others(tokenizer, monkeypatch):
    engine = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1)
    texts = ["hello", "", "the cat", "hello", "hell", "o", ""]
    found = fingerprints(engine, texts).tolist()
    assert found[0] == found[3]
    assert found[1] == found[6]
    assert len(set(found)) == 5
    monkeypatch.setattr(module, "_CALL_TEXTS", 2)
    assert fingerprints(engine, texts).tolist() == found
    assert fingerprints(engine, []).tolist() == []
