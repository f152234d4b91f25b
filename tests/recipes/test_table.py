from __future__ import annotations

from tokmill.recipes.pretrain import PretrainRecipe
from tokmill.recipes.sft import SftRecipe
from tokmill.recipes.table import make_recipe
from tokmill.values import WHOLE_RECORD

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
