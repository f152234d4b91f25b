from __future__ import annotations

import pytest

from tokmill.errors import UsageError
from tokmill.extensions import check_name, find
from tokmill.settings.load import build_config
from tokmill.tables import ENGINES, FORMATS, RENDERERS, TRAINERS


@pytest.mark.parametrize(
    ("section", "key", "table"),
    [
        ("input", "format", FORMATS),
        ("render", "renderer", RENDERERS),
        ("run", "engine", ENGINES),
    ],
)
def test_a_setting_takes_every_built_in_name_and_refuses_another(section, key, table):
    for name in table.choices:
        config = build_config({section: {key: name}}, where="run.toml")
        assert getattr(getattr(config, section), key) == name
    with pytest.raises(UsageError) as caught:
        build_config({section: {key: "no-such"}}, where="run.toml")
    assert str(caught.value) == (
        f"run.toml: {section}.{key}: expected one of {', '.join(table.choices)}; found 'no-such'"
    )


@pytest.mark.parametrize("name", ["nanoGPT", "TRL", "Llm.c"])
def test_a_name_in_other_capitals_is_proposed(name):
    with pytest.raises(UsageError, match=rf"; found '{name}': did you mean {name.lower()}\?$"):
        check_name(TRAINERS, name, "trainer")


def test_the_nearest_name_is_proposed():
    with pytest.raises(UsageError, match=r"; found 'gigatokn': did you mean gigatoken\?$"):
        check_name(ENGINES, "gigatokn", "run.toml: run.engine")


def test_every_row_names_an_object_that_came_with_tokmill():
    for name in ENGINES.rows:
        value, extension = find(ENGINES, name)
        assert extension is None
        assert value.distribution
