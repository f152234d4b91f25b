from __future__ import annotations

from tokmill.batch import WHOLE_RECORD
from tokmill.pipeline.chat_road import ChatRoad
from tokmill.pipeline.road import PretrainRoad
from tokmill.pipeline.roads import make_road

CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}


def test_a_run_for_pretraining_takes_the_columns_of_its_renderer(
    tmp_path, configure, plan_of, write_rows
):
    source = write_rows(tmp_path / "in.jsonl", [{"text": "hello"}])
    road = make_road(plan_of(configure(tmp_path / "out", source)).spec)
    assert type(road) is PretrainRoad
    assert road.schema.names == ["text"]
    assert road.reference is None


def test_a_run_of_sft_takes_whole_records(chat_run):
    road = make_road(chat_run([CHAT]).spec)
    assert type(road) is ChatRoad
    assert road.schema.names == [WHOLE_RECORD]
    assert road.reference is None


def test_a_road_with_a_fast_engine_asks_the_reference_that_it_is_given(chat_run):
    spec = chat_run([CHAT], engine="gigatoken").spec
    loaded = object()
    assert make_road(spec, lambda: loaded).reference() is loaded
    own = make_road(spec).reference
    assert own() is own()
