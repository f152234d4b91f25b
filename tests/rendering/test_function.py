from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

import pyarrow as pa
import pytest

from tokmill.errors import UsageError
from tokmill.rendering.function import find_renderer
from tokmill.rendering.renderer import make_renderer
from tokmill.rendering.user_functions import function_setting
from tokmill.settings.schema import RenderSettings
from tokmill.values import WHOLE_RECORD, ControlToken

SCHEMA = pa.schema([("a", pa.string())])
ROWS = [{"a": "x"}, {"a": ""}, {"a": None}, {"a": "y"}]


def renderer_of(function):
    function.schema = SCHEMA
    return make_renderer(RenderSettings(renderer=function_setting(function)))


def importable(batch):
    return batch["a"]


def test_null_and_an_empty_string_drop_a_record(records):
    found = renderer_of(importable).render(records(ROWS, SCHEMA))
    assert found.text.to_pylist() == ["x", "y"]
    assert found.text.type == pa.large_string()
    assert (found.rows.tolist(), found.refused) == ([0, 3], {})
    drops = {reason: rows.tolist() for reason, rows in found.drops.items()}
    assert drops == {"empty": [1], "left out by the renderer": [2]}


def test_without_a_schema_a_function_gets_whole_records(records):
    seen = []

    def keep(batch):
        seen.append((batch.schema.names, batch["record"].to_pylist()))
        return batch["record"].cast(pa.string())

    renderer = make_renderer(RenderSettings(renderer=function_setting(keep)))
    rows = [{WHOLE_RECORD: text} for text in ('{"a": 1}', '{"b": 2}')]
    found = renderer.render(records(rows, renderer.schema))
    assert found.text.to_pylist() == ['{"a": 1}', '{"b": 2}']
    assert seen == [(["record"], ['{"a": 1}', '{"b": 2}'])]


def not_utf8(batch):
    offsets = pa.py_buffer(b"".join(i.to_bytes(4, "little") for i in range(len(batch) + 1)))
    buffers = [None, offsets, pa.py_buffer(b"\xff" * len(batch))]
    return pa.Array.from_buffers(pa.string(), len(batch), buffers)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda _: ["a"], "expected 4 strings, one for each row, found 1"),
        (lambda _: None, "a wrong value: expected a pyarrow Array of strings or a list, found No"),
        (lambda b: pa.array([1] * len(b)), "expected an Array of strings, found one of int64"),
        (lambda _: pa.array(["a"]), "expected 4 strings, one for each row, found 1"),
        (not_utf8, "expected strings of valid UTF-8: "),
        (lambda _: 1 / 0, "raised ZeroDivisionError: division by zero (test_function.py:"),
    ],
)
def test_a_wrong_return_value_is_one_line_that_names_the_function(records, function, expected):
    with pytest.raises(UsageError) as caught:
        renderer_of(function).render(records(ROWS, SCHEMA))
    assert str(caught.value).startswith(f"renderer {function_setting(function)} r")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("render = 1\n", "expected a function, found int"),
        ("def render(batch): ...\nrender.schema = 1\n", "expected its attribute schema to be one"),
        ("import nothing\n", "cannot be imported: ModuleNotFoundError: No module named 'nothing'"),
        ("", "cannot be imported: AttributeError: module 'wrong' has no attribute 'render'"),
    ],
)
def test_a_dotted_path_to_something_else_is_one_line(tmp_path, monkeypatch, code, expected):
    (tmp_path / "wrong.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "wrong", raising=False)
    before = list(sys.path)
    with pytest.raises(UsageError) as caught:
        make_renderer(RenderSettings(renderer="wrong:render"))
    assert f"renderer wrong:render: {expected}" in str(caught.value)
    assert sys.path == before
    monkeypatch.delitem(sys.modules, "wrong", raising=False)


def test_a_function_of_a_module_is_its_dotted_path():
    assert function_setting(importable) == f"{__name__}:importable"
    assert find_renderer("text").extension is None


def test_a_local_function_is_known_by_its_code():
    found = [find_renderer(function_setting(f)).extension for f in (lambda b: b, lambda b: [b])]
    assert found[0].sha256 != found[1].sha256


def _capturing(value):
    return lambda batch: pa.array([str(value)] * batch.num_rows)


@pytest.mark.parametrize(
    "made",
    [
        _capturing,
        lambda value: partial(_capturing, value),
        lambda value: lambda batch, value=value: pa.array([value] * batch.num_rows),
        lambda value: lambda batch: _capturing(value)(batch),
    ],
)
def test_a_local_function_is_known_by_the_values_that_it_captures(made):
    one, same, other = (function_setting(made(value)) for value in ("a", "a", "b"))
    assert one == same != other


def test_a_function_that_captures_itself_has_an_identity():
    def render(batch):
        return render(batch)

    assert function_setting(render) == function_setting(render)


# A function of one record

WHOLE = pa.schema([(WHOLE_RECORD, pa.large_string())])


def shout(record):
    return record["a"].upper() if record.get("a") is not None else None


class Shouter:
    def __call__(self, record: dict) -> str | None:
        return shout(record)

    def of(self, record):
        return shout(record)


def render_each(records, function, rows=ROWS):
    renderer = make_renderer(RenderSettings(renderer=function_setting(function)))
    return renderer.render(records([{WHOLE_RECORD: json.dumps(row)} for row in rows], WHOLE))


@pytest.mark.parametrize(
    "function",
    [
        shout,
        lambda r: shout(r),
        Shouter(),
        Shouter().of,
        partial(shout),
        partial(lambda n, r: shout(r), 1),
    ],
)
def test_a_function_of_one_record_returns_its_text(records, function):
    found = render_each(records, function)
    assert (found.text.to_pylist(), found.rows.tolist()) == (["X", "Y"], [0, 3])
    drops = {reason: rows.tolist() for reason, rows in found.drops.items()}
    assert drops == {"empty": [1], "left out by the renderer": [2]}
    assert found.pieces is None


def by_name(batch):
    return batch["record"]


def by_type(rows: pa.RecordBatch):
    return rows["record"]


@pytest.mark.parametrize("function", [by_name, by_type])
def test_a_function_of_columns_says_so_by_a_name_or_a_type(records, function):
    assert render_each(records, function, [{"a": 1}]).text.to_pylist() == ['{"a": 1}']


def test_a_record_for_which_the_function_raises_is_a_reject_with_its_line(records):
    found = render_each(records, lambda record: record["a"].strip())
    assert (found.rows.tolist(), list(found.refused)) == ([0, 3], [2])
    reject = found.refused[2]
    assert reject.reason == "the renderer raised an error"
    assert "AttributeError: 'NoneType' object has no attribute 'strip'" in reject.message
    assert 'found = render_each(records, lambda record: record["a"].strip())' in reject.message


def test_a_function_of_one_record_places_control_tokens(records):
    pieces = [ControlToken("<eos>"), "x"]
    found = render_each(records, lambda record: pieces if record["a"] == "x" else record["a"])
    assert found.pieces == [pieces, ["y"]]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (
            lambda _: 5,
            'for each record, found 5 for the record that begins \'{"a": "x"}\'',
        ),
        (lambda record: record, "for each record, found {'a': 'x'}"),
        (lambda _: pa.array(["a"]), "name its parameter batch, if it is a function of columns"),
        (lambda a, b: a, "expected a function of one record, found parameters (a, b)"),
        (lambda: 1, "expected a function of one record, found parameters ()"),
    ],
)
def test_another_function_or_value_says_what_was_expected(records, function, expected):
    with pytest.raises(UsageError) as caught:
        render_each(records, function)
    assert expected in " ".join(str(caught.value).split())
    assert str(caught.value).startswith(f"renderer {function_setting(function)}")


# Identity

SET_IN_A_LAMBDA = """
from tokmill.rendering.user_functions import function_setting
print(function_setting(lambda batch: batch in {"a", "b", "c", "d", "e"}))
"""


def test_a_lambda_has_the_same_identity_in_each_process():
    names = {
        subprocess.run(
            [sys.executable, "-c", SET_IN_A_LAMBDA],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(names) == 1


def test_sys_exit_in_a_renderer_is_an_error_and_no_end_of_the_program(records):
    with pytest.raises(UsageError, match="raised SystemExit: 0"):
        renderer_of(lambda batch: sys.exit(0)).render(records(ROWS, SCHEMA))
