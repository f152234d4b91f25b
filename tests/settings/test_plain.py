from __future__ import annotations

import json

from tokmill.settings.load import build_config
from tokmill.settings.plain import not_default, output_settings, plain
from tokmill.settings.schema import Config


def test_the_settings_that_decide_the_bytes_leave_out_paths_speed_and_messages():
    chosen = output_settings(Config())
    assert set(chosen) == {"input", "tokenizer", "render", "output", "limits"}
    assert set(chosen["limits"]) == {"min_tokens", "max_tokens"}
    assert "paths" not in chosen["input"]
    assert "path" not in chosen["tokenizer"]
    assert "dir" not in chosen["output"]


def test_a_setting_of_speed_does_not_change_what_decides_the_bytes():
    fast = build_config({"run": {"workers": 9, "block_bytes": 1}}, where="x")
    other = build_config({"render": {"renderer": "encyclopedia:separator=："}}, where="x")
    assert output_settings(fast) == output_settings(Config())
    assert output_settings(other) != output_settings(Config())


def test_plain_values_are_json_and_build_the_same_configuration():
    config = build_config({"input": {"paths": ["a", "b"]}, "run": {"threads": 3}}, where="x")
    assert build_config(json.loads(json.dumps(plain(config))), where="x") == config


def test_the_settings_of_a_run_that_are_not_the_defaults_build_the_same_section():
    config = build_config(
        {"model": {"name": "gpt2", "layers": 2}, "run": {"threads": 3}}, where="x"
    )
    assert plain(config)["model"]["hidden"] == 0
    found = not_default(plain(config), ("model", "training"))
    assert found == {"model": {"name": "gpt2", "layers": 2}}
    assert build_config(found, where="x").model == config.model
    assert not_default({"model": ["forged"]}, ("model",)) == {"model": ["forged"]}
