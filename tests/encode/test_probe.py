from __future__ import annotations

import dataclasses
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tokmill.encode.choose import ProbeTask
from tokmill.encode.engine import FAST_ENGINES, REFERENCE, is_installed, load_engine
from tokmill.encode.probe import run

TEXTS = ["hello world", "", "a<eos>b", "猫"]


def make_task(tokenizer, engine, *, timing=(), skew=0):
    batch = load_engine(REFERENCE, tokenizer, control_in_text="text", n_threads=1).encode(
        pa.array(TEXTS, pa.large_string())
    )
    ids = [batch.ids[batch.offsets[i] : batch.offsets[i + 1]] + skew for i in range(len(TEXTS))]
    return ProbeTask(engine, tokenizer, "text", 1, TEXTS, ids, timing)


@pytest.mark.parametrize("name", [REFERENCE, *FAST_ENGINES])
def test_an_equal_engine_without_a_timing_sample_has_no_speed(tokenizer, name):
    if not is_installed(name):
        pytest.skip(f"{name} has no wheel here")
    assert run(make_task(tokenizer, name)) == {"mb_per_s": 0.0}


def test_an_equal_engine_is_timed_on_the_second_half_of_the_sample(tokenizer):
    answer = run(make_task(tokenizer, REFERENCE, timing=["hello world"] * 500))
    assert answer["mb_per_s"] > 0


def test_the_first_differing_text_is_named(tokenizer):
    answer = run(make_task(tokenizer, REFERENCE, skew=1))
    assert "of the document that begins 'hello world'" in answer["refused"]


def test_the_child_process_answers_with_one_line_of_json(tokenizer, tmp_path: Path):
    (tmp_path / "task").write_bytes(pickle.dumps(make_task(tokenizer, REFERENCE)))
    child = subprocess.run(
        [sys.executable, "-m", "tokmill.encode.probe", str(tmp_path / "task")],
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert json.loads(child.stdout) == {"mb_per_s": 0.0}
    assert child.stderr == b""


@pytest.mark.parametrize("name", FAST_ENGINES)
def test_an_engine_that_cannot_load_the_tokenizer_says_why(tokenizer, name):
    model = dataclasses.replace(tokenizer, name="m.model", json="")
    assert run(dataclasses.replace(make_task(tokenizer, name), tokenizer=model)) == {
        "refused": f"engine {name} cannot take m.model: no tokenizer.json says the same"
    }
