from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.recipes.sft import SftRecipe
from tokmill.recipes.table import make_recipe
from tokmill.values import WHOLE_RECORD, TokenBatch

CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}


def test_a_run_of_pretraining_reads_the_columns_of_its_renderer(
    tmp_path, configure, plan_of, write_rows
):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello"}])
    recipe = make_recipe(plan_of(configure(tmp_path / "out", source)).spec)
    assert type(recipe) is PretrainRecipe
    assert recipe.schema.names == ["text"]
    assert recipe.spot is None


def test_a_run_of_sft_reads_complete_records(chat_run):
    recipe = make_recipe(chat_run([CHAT]).spec)
    assert type(recipe) is SftRecipe
    assert recipe.schema.names == [WHOLE_RECORD]
    assert recipe.spot is None


@pytest.mark.parametrize("kind", ["pretrain", "sft"])
def test_a_recipe_with_a_fast_engine_uses_the_given_reference(
    kind, chat_run, tmp_path, configure, plan_of, write_rows
):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "a"}])
    plan = plan_of(configure(tmp_path / "out", source, engine="gigatoken"))
    spec = plan.spec if kind == "pretrain" else chat_run([CHAT], engine="gigatoken").spec
    spec = replace(spec, engine=replace(spec.engine, spot_share=1.0))
    tokens = TokenBatch(np.array([7], np.uint32), np.array([0, 1]))

    class Given:
        def encode(self, text):
            return tokens

    spot = make_recipe(spec, Given).spot
    text = pa.array(["x"], pa.large_string())

    def encode(is_continuation, text):
        return tokens

    assert [result.difference for result in spot.check(text, tokens, encode)] == [""]
    (own,) = make_recipe(spec).spot.check(text, tokens, encode)
    assert "at token 0 ([7] against " in own.difference
