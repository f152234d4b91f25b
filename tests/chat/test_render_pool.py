from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial

import numpy as np
import psutil
import pyarrow as pa
import pytest

from tokmill.chat import render_pool
from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.jinja import environment
from tokmill.chat.own_templates import own_source
from tokmill.chat.records import Written
from tokmill.chat.render_pool import ChatRenderer, RenderPool, shared_pool
from tokmill.children import Child
from tokmill.errors import TemplateLimitError, UsageError, WorkerError
from tokmill.settings.sft import SftSettings
from tokmill.values import WHOLE_RECORD, Records

SETTINGS = SftSettings(schema="messages", template="plain", samples="turn")
EVERYTHING = SftSettings(schema="messages", template="own.jinja", train=("everything",))
VOCABULARY = Vocabulary({"<eos>": 2}, "<eos>", "", {"eos_token": "<eos>"})
TEXT = pa.array(
    [
        json.dumps({"messages": [{"role": "user", "content": "U"}, *reply]})
        for reply in (
            [{"role": "assistant", "content": "猫"}],
            [],
            [{"role": "bot", "content": "?"}],
            [{"role": "assistant", "content": ""}, {"role": "assistant", "content": "B"}],
        )
    ],
    pa.large_string(),
)


PLAIN = own_source("plain")
FOREIGN = "{% for m in messages %}{{ m.content }}{% endfor %}{# from outside #}"


def make_pool(n_processes: int, source: str = PLAIN) -> RenderPool:
    return RenderPool(source, n_processes)


def plain(written: Written) -> tuple[object, ...]:
    samples = written.samples
    return (
        samples.text.to_pylist(),
        samples.control.tolist(),
        samples.weights.tolist(),
        samples.turn_ends.tolist(),
        samples.offsets.tolist(),
        samples.rows.tolist(),
        written.refused,
        {reason: rows.tolist() for reason, rows in samples.drops.items()},
    )


@pytest.fixture
def at_once(monkeypatch):
    """Start processes with the second call."""
    monkeypatch.setattr(render_pool, "START_AFTER_S", -1.0)


def n_processes(pool: RenderPool) -> int:
    return len(pool._children)


def test_children_render_the_same_as_this_process(at_once):
    here, pool = make_pool(1), make_pool(2)
    expected = plain(here.write(VOCABULARY, SETTINGS, TEXT))
    assert expected[5] == [0, 3, 3]
    assert [plain(pool.write(VOCABULARY, SETTINGS, TEXT)) for _ in range(3)] == [expected] * 3
    assert (n_processes(here), n_processes(pool)) == (0, 2)
    pool.close()


@pytest.mark.parametrize("most", [0, 1, 3])
def test_a_template_from_outside_is_rendered_by_children_alone(most, monkeypatch):
    settings = EVERYTHING
    pool = make_pool(most, source=FOREIGN)
    assert pool.write(VOCABULARY, settings, TEXT).samples.text.to_pylist() == ["U猫", "U", "UB"]
    assert n_processes(pool) == 1
    pool._spent_s = 1.0
    pool.write(VOCABULARY, settings, TEXT)
    assert n_processes(pool) == (most if most >= 2 else 1)
    pool.close()


def test_a_template_from_outside_is_not_read_in_this_process(monkeypatch):
    def fail(source, **_):
        raise AssertionError(source)

    monkeypatch.setattr(environment, "source_facts", fail)
    monkeypatch.setattr(environment, "compile_template", fail)
    pool = make_pool(1, source="<a>{{ '<b>' }}{# <c> #}" + FOREIGN)
    assert pool.emitted(["<a>", "<b>", "<c>"]) == {"<a>", "<b>"}
    assert pool.write(VOCABULARY, EVERYTHING, TEXT).samples.text.to_pylist()[0] == "<a><b>U猫"
    assert n_processes(pool) == 1
    pool.close()


@pytest.mark.parametrize(
    ("written", "row"),
    [
        ("{{ 'x' * (2 ** 19 + 2 ** 14 + 900) }}", 0),  # one long sample
        ("{{ 'x' * 300_000 }}", 1),  # each is short, all are long
    ],
)
def test_a_template_that_writes_too_much_ends_the_run_with_one_line(written, row):
    lines = [
        json.dumps(
            {"messages": [{"role": "user", "content": x}, {"role": "assistant", "content": "b"}]}
        )
        for x in ("one", "two", "three", "four")
    ]
    source = "{% if messages[0].content|length > 2 %}" + written + "{% endif %}" + FOREIGN
    pool = make_pool(1, source=source)
    with pytest.raises(TemplateLimitError) as error:
        pool.write(VOCABULARY, EVERYTHING, pa.array(lines, pa.large_string()))
    assert str(error.value) == (
        "the chat template, or a --weigh, took more than 524,288 characters of text and 8 for each "
        "character of a record: use another, or a lower --max-record-bytes, which leaves long "
        f"records out; it stopped at record {row + 1} of the block"
    )
    assert error.value.row == row
    pool.write(VOCABULARY, EVERYTHING, TEXT)  # the child goes on
    pool.close()


def test_text_is_bounded_by_what_records_hold():
    long = json.dumps({"messages": [{"role": "user", "content": "x" * 400_000}]})
    pool = make_pool(1, source=FOREIGN + "{{ messages[0].content * 7 }}")
    text = pa.array([long] * 3, pa.large_string())
    assert len(pool.write(VOCABULARY, EVERYTHING, text).samples.offsets) == 4
    pool.close()


LIMITS = """
from tokmill.chat import limits, render_pool
limits.TIME_S = 0.5
main = render_pool.main
"""
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
HUGE = "{{ 'x' * 10 ** 10 }}"


@pytest.mark.parametrize(
    ("attack", "limit", "share"),
    [
        (ENDLESS, "3 s of processor time", "150 s for each MiB of records"),
        (HUGE, "128 MiB of memory", "64 bytes for each character of a record"),
    ],
)
def test_a_template_beyond_a_limit_ends_the_run_with_one_line_that_names_the_record(
    tmp_path, monkeypatch, attack, limit, share
):
    (tmp_path / "low_limits.py").write_text(LIMITS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(render_pool, "Child", lambda _: Child("low_limits"))
    settings = EVERYTHING
    source = "{% if messages[0].content == 'bad' %}" + attack + "{% endif %}" + FOREIGN
    pool = make_pool(1, source=source)
    renderer = ChatRenderer(settings, "own.jinja", partial(pool.write, VOCABULARY, settings))
    lines = [json.dumps({"messages": [{"role": "user", "content": x}]}) for x in ("a", "bad", "b")]
    column = pa.array(lines, pa.large_string())
    batch = pa.RecordBatch.from_arrays([column], names=[WHOLE_RECORD])
    records = Records(batch, np.zeros((3, 2), np.int64), lambda row: lines[row].encode(), None)
    with pytest.raises(TemplateLimitError) as error:
        renderer.render(records)
    assert str(error.value) == (
        f"the chat template, or a --weigh, took more than {limit} and {share}: use another, "
        "or a lower --max-record-bytes, which leaves long records out; it stopped at record 2 of "
        f"the block, which begins {lines[1]!r}"
    )
    pool.close()
    pool = make_pool(1, source=attack)
    with pytest.raises(TemplateLimitError) as error:
        pool.check(VOCABULARY, settings)
    assert str(error.value) == (
        f"the chat template took more than {limit} for a chat of a few words: use another "
        "--template"
    )
    pool.close()


@pytest.mark.parametrize("source", [PLAIN, FOREIGN])
def test_a_weigh_that_never_ends_stops_the_run_with_a_template_of_tokmills_too(
    tmp_path, monkeypatch, source
):
    """In this process it would hold the interpreter lock, and Ctrl-C would wait for ever."""
    (tmp_path / "low_limits.py").write_text(LIMITS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(render_pool, "Child", lambda _: Child("low_limits"))
    settings = replace(SETTINGS, weigh=("(a+)+$=0",), train=(), samples="conversation")
    text = [
        json.dumps({"messages": [{"role": "user", "content": "U"}, {"role": role, "content": x}]})
        for role, x in (("assistant", "b"), ("assistant", "a" * 40 + "!"))
    ]
    pool = make_pool(0, source=source)
    with pytest.raises(TemplateLimitError, match=r"or a --weigh, .* it stopped at record 2 of the"):
        pool.write(VOCABULARY, settings, pa.array(text, pa.large_string()))
    pool.close()


def test_where_a_child_cannot_limit_its_memory_it_is_watched(monkeypatch):
    monkeypatch.setattr(render_pool, "IS_LIMITED", False)
    monkeypatch.setattr(render_pool, "_LOOK_S", 0.05)
    monkeypatch.setattr(render_pool, "WATCHED_BYTES", 1 << 20)
    monkeypatch.setattr(render_pool, "WATCHED_TIMES_INPUT", 0)
    settings = EVERYTHING
    pool = make_pool(
        1, source="{% if messages[0].content == 'U' %}" + ENDLESS + "{% endif %}" + FOREIGN
    )
    with pytest.raises(TemplateLimitError, match="took more than 1 MiB of memory"):
        pool.write(VOCABULARY, settings, TEXT)
    pool.close()


def test_an_error_of_a_child_is_raised_here_in_its_own_words():
    pool = make_pool(1, source="{% for %}")
    settings = replace(SETTINGS, template="own.jinja")
    for _ in range(2):  # the child goes on
        with pytest.raises(UsageError, match=r"^own\.jinja:1: not a Jinja template: "):
            pool.check(VOCABULARY, settings)
    pool.close()


def test_renderers_of_one_template_share_its_processes():
    pool = shared_pool(FOREIGN)
    assert shared_pool(FOREIGN, 2) is pool
    assert pool.n_processes == 2
    assert shared_pool(FOREIGN + " ") is not pool
    pool.close()


def test_a_child_that_died_is_an_error(at_once):
    pool = make_pool(2)
    pool.write(VOCABULARY, SETTINGS, TEXT)
    for child in pool._children:
        child._child.stop()
        child._child.wait()
    with pytest.raises(WorkerError, match=r"renders chats died \(exit status -9\)"):
        pool.write(VOCABULARY, SETTINGS, TEXT)
    pool.close()


def test_a_child_that_dies_at_its_start_is_an_error_for_every_thread(
    at_once, tmp_path, monkeypatch
):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 7\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    too_long_for_a_pipe = "{# " + 1_000_000 * "-" + " #}"
    pool = make_pool(2, source=FOREIGN + too_long_for_a_pipe)
    for _ in range(3):
        with pytest.raises(WorkerError, match=r"renders chats died \(exit status 7\)"):
            pool.write(VOCABULARY, SETTINGS, TEXT)
    pool.close()


def test_children_end_with_the_pool(at_once):
    before = set(psutil.Process().children())  # helpers of multiprocessing, of earlier tests
    pool = make_pool(2)
    pool.write(VOCABULARY, SETTINGS, TEXT)
    assert len(set(psutil.Process().children()) - before) == 2
    pool.close()
    assert set(psutil.Process().children()) == before
