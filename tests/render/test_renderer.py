from __future__ import annotations

import pytest

from tokmill.errors import UsageError
from tokmill.fields import FieldSample
from tokmill.render.encyclopedia import Encyclopedia
from tokmill.render.renderer import make_renderer
from tokmill.render.template import Template
from tokmill.settings.schema import RenderSettings


def sample(*records):
    found = FieldSample(("sections",))
    for record in records:
        found.add(record)
    return found


@pytest.mark.parametrize(
    ("settings", "kind", "columns"),
    [
        ({"renderer": "encyclopedia"}, Encyclopedia, ["title", "summary", "sections"]),
        ({"renderer": "text"}, Template, ["text"]),
        ({"renderer": "text", "text_field": "body"}, Template, ["body"]),
        ({"renderer": "template", "template": "{a}{b}"}, Template, ["a", "b"]),
    ],
)
def test_the_renderer_is_the_one_named(settings, kind, columns):
    renderer = make_renderer(RenderSettings(**settings))
    assert renderer.name == settings["renderer"]
    assert isinstance(renderer, kind)
    assert renderer.schema.names == columns


@pytest.mark.parametrize(
    ("settings", "record", "expected"),
    [
        (
            {"renderer": "text"},
            {"title": "a b c", "sections": [{"title": "t t t", "content": "some text of it"}]},
            "renderer text wants the keys text; the first records have title, sections: take the "
            "sections with --renderer encyclopedia, or only the other texts with "
            "--template '{title}'",
        ),
        (
            {"renderer": "encyclopedia"},
            {"text": "some text"},
            "renderer encyclopedia wants the keys title, summary, sections; "
            "the first records have text: name it with --renderer text --text-field text",
        ),
        (
            {"renderer": "template", "template": "{a}{b}"},
            {"text": "some text"},
            "renderer template wants the keys a, b; the first records have text: "
            "name it with --renderer text --text-field text",
        ),
        (
            {"renderer": "template"},
            {"a": "some text"},
            "renderer template needs a --template such as '{title}\\n{body}'",
        ),
        (
            {"renderer": "template", "template": "{"},
            {"a": "some text"},
            "template '{': Single '{' encountered in format string; write {{ for a brace",
        ),
    ],
)
def test_a_source_without_the_fields_is_told_what_it_has_and_what_fits(settings, record, expected):
    with pytest.raises(UsageError) as caught:
        make_renderer(RenderSettings(**settings), sample(record))
    assert str(caught.value) == expected


def test_a_long_list_of_keys_is_cut_short():
    keys = sample({f"k{i}": "some text" for i in range(20)})
    with pytest.raises(UsageError, match=r"k10, k11, …: name all with"):
        make_renderer(RenderSettings(renderer="text"), keys)


def test_a_template_of_one_known_key_is_enough(records):
    settings = RenderSettings(renderer="template", template="{a}-{b}")
    renderer = make_renderer(settings, sample({"a": "x", "z": "?"}))
    batch = renderer.render(records([{"a": "x", "z": "?"}], renderer.schema))
    assert batch.text.to_pylist() == ["x-"]
