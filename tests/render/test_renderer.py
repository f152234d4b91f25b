from __future__ import annotations

import pytest

from tokmill.config import RenderSettings
from tokmill.errors import UsageError
from tokmill.render.encyclopedia import Encyclopedia
from tokmill.render.renderer import make_renderer
from tokmill.render.template import Template


@pytest.mark.parametrize(
    ("settings", "keys", "name", "columns"),
    [
        ({}, ["title", "summary", "sections"], "encyclopedia", ["title", "summary", "sections"]),
        ({}, ["sections", "id"], "encyclopedia", ["title", "summary", "sections"]),
        ({}, ["title"], "encyclopedia", ["title", "summary", "sections"]),
        ({}, ["text"], "text", ["text"]),
        ({}, ["id", "title", "text"], "text", ["text"]),
        ({}, ["text", "summary"], "encyclopedia", ["title", "summary", "sections"]),
        ({}, [], "encyclopedia", ["title", "summary", "sections"]),
        ({"text_field": "body"}, ["body", "title"], "text", ["body"]),
        ({"title_field": "name"}, ["name"], "encyclopedia", ["name", "summary", "sections"]),
        ({"template": "{a}{b}"}, ["text", "a"], "template", ["a", "b"]),
        ({"renderer": "text"}, [], "text", ["text"]),
        ({"renderer": "text"}, ["text", "sections"], "text", ["text"]),
        ({"renderer": "encyclopedia"}, ["title", "text"], "encyclopedia", None),
        ({"renderer": "text", "template": "{a}"}, ["text"], "text", ["text"]),
    ],
)
def test_the_renderer_is_the_one_named_or_the_first_that_fits(settings, keys, name, columns):
    renderer = make_renderer(RenderSettings(**settings), keys)
    assert renderer.name == name
    assert isinstance(renderer, Encyclopedia if name == "encyclopedia" else Template)
    if columns:
        assert renderer.schema.names == columns


@pytest.mark.parametrize(
    ("settings", "keys", "expected"),
    [
        (
            {},
            ["id", "body"],
            "no renderer fits the keys of the first records, id, body: "
            "name one with --renderer text --text-field id, or several with --template",
        ),
        (
            {"renderer": "text"},
            ["title", "sections"],
            "renderer text wants the keys text; the first records have title, sections: "
            "use --renderer encyclopedia",
        ),
        (
            {"renderer": "encyclopedia"},
            ["text"],
            "renderer encyclopedia wants the keys title, summary, sections; "
            "the first records have text: use --renderer text",
        ),
        (
            {"template": "{a}{b}"},
            ["text"],
            "renderer template wants the keys a, b; the first records have text: "
            "use --renderer text",
        ),
        (
            {"renderer": "template"},
            ["a"],
            "renderer template needs a --template such as '{title}\\n{body}'",
        ),
        (
            {"template": "{"},
            ["a"],
            "template '{': Single '{' encountered in format string; write {{ for a brace",
        ),
    ],
)
def test_a_source_without_the_fields_is_told_what_it_has_and_what_fits(settings, keys, expected):
    with pytest.raises(UsageError) as caught:
        make_renderer(RenderSettings(**settings), keys)
    assert str(caught.value) == expected


def test_a_long_list_of_keys_is_cut_short():
    keys = [f"k{i}" for i in range(20)]
    with pytest.raises(UsageError, match=r"k10, k11, …: name one with --renderer text"):
        make_renderer(RenderSettings(), keys)


def test_a_template_of_one_known_key_is_enough(records):
    renderer = make_renderer(RenderSettings(template="{a}-{b}"), ["a", "z"])
    batch = renderer.render(records([{"a": "x", "z": "?"}], renderer.schema))
    assert batch.text.to_pylist() == ["x-"]
