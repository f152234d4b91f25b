"""`tokmill memory`: what a model takes, from formulas alone."""

from __future__ import annotations

import json
import re

import pytest

GPT2 = ("memory", "--model", "gpt2")


def test_without_a_gpu_there_is_no_verdict_but_a_line_that_says_how_to_get_one(tokmill):
    outcome = tokmill(*GPT2)
    assert (outcome.code, outcome.err) == (0, "")
    assert re.search(r"^model +gpt2, 124,439,808 parameters$", outcome.out, re.MULTILINE)
    assert re.match(r"verdict +unknown: add --gpu", outcome.out)
    assert "fits on" not in outcome.out


def test_a_verdict_says_how_much_is_left(tokmill):
    out = tokmill(*GPT2, "--gpu", "80GiB").out
    lines = out.splitlines()
    assert len(lines) <= 10
    assert lines[-1].startswith("more ")
    for option in ("--only", "--all", "--explain"):
        assert option in lines[-1]
    assert re.search(
        r"^verdict +fits on 80GiB \(80\.00 GiB\): 7\d\.\d\d GiB left$", out, re.MULTILINE
    )
    assert re.search(
        r"^largest +micro batch [\d,]+ at sequence 1,024; at micro batch 1, the model", out, re.M
    )


def test_explained_amounts_have_formula_symbols_and_source(tokmill):
    plain, explained = tokmill(*GPT2).out, tokmill(*GPT2, "--explain").out
    assert "source:" not in plain
    assert "source:" in explained
    assert "  KV cache" in tokmill(*GPT2, "--only", "inference", "--explain").out
    assert re.search(r"P_trained = 124,439,808", explained)


def test_json_is_one_object_with_a_schema_whose_lines_add_up(tokmill):
    outcome = tokmill(*GPT2, "--gpu", "T4", "--json")
    found = json.loads(outcome.out)
    assert outcome.err == ""
    assert found["schema"] == 1
    assert set(found) == {
        "schema", "settings", "notes", "not_read", "model", "gpu", "training", "inference",
        "advice", "inference_advice", "compute", "host", "disk",
    }  # fmt: skip
    assert found["model"]["parameters"] == 124_439_808
    assert sum(found["model"]["by_module"].values()) == 124_439_808
    assert found["settings"]["training"]["sequence"] == 1024
    assert found["gpu"]["name"] == "T4"
    for bill in (found["training"]["peak"], found["inference"], *found["training"]["moments"]):
        assert bill["bytes"] == sum(line["bytes"] for line in bill["lines"])
        assert bill["low_bytes"] <= bill["bytes"] <= bill["high_bytes"]
        assert all(line["formula"] for line in bill["lines"])
    peak = max(bill["bytes"] for bill in found["training"]["moments"])
    assert found["training"]["peak"]["bytes"] == peak
    assert found["compute"] is None
    assert found["disk"]["dataset"] is None
    weights = found["disk"]["checkpoints"]["lines"][0]
    assert weights["bytes"] == 3 * 4 * 124_439_808


def test_the_built_in_models_and_gpus_are_listed(tokmill):
    assert "gpt2" in tokmill("memory", "--models").out.splitlines()
    assert re.search(r"^T4 +1\d\.\d\d GiB$", tokmill("memory", "--known-gpus").out, re.MULTILINE)
    listed = json.loads(tokmill("memory", "--models", "--known-gpus", "--json").out)
    assert "gpt2" in listed["models"]
    assert listed["gpus"]["T4"] > 14 << 30
    assert listed["schema"] == 1


def test_all_formulas_are_printed_without_a_model(tokmill):
    from tokmill.bill.text.formulas import formulas_page

    assert tokmill("memory", "--formulas").out == formulas_page()


def test_alternatives_are_compared_side_by_side(tokmill):
    out = tokmill(*GPT2, "--gpu", "T4", "--compare", "checkpointing=none,full").out
    verdict, title, heads, *_ = out.splitlines()
    assert verdict == "verdict  fits: none, full"
    assert title == "gpt2: GPU memory of training --sequence 1024 on T4, GiB"
    assert heads.split() == ["checkpointing", "expected", "at", "most", "activations", "fits"]
    assert re.search(r"^full +(\d\.\d\d +){3}yes$", out, re.MULTILINE)
    usual = json.loads(tokmill(*GPT2, "--compare", "--json").out)
    assert usual["axes"] == ["precision", "checkpointing", "adapter"]
    wrong = tokmill(*GPT2, "--compare", "colour")
    assert wrong.code == 2
    assert "compare: expected colour=VALUE,VALUE, found no values" in wrong.err


@pytest.mark.parametrize("part", ["gpu", "inference"])
def test_a_number_of_parameters_never_simply_fits(part, tokmill):
    words = ("memory", "--parameters", "1.5B", "--gpu", "H200", "--only", part)
    shown = tokmill(*words).out
    verdict = " ".join(shown.partition("GPU memory")[0].split())
    missing = {"gpu": "activations and logits", "inference": "KV cache and activations"}[part]
    assert verdict.split(maxsplit=1)[1].startswith("at least ")
    assert " on H200 (139.72 GiB)" in verdict
    assert verdict.endswith(f"; not included: {missing}")
    assert tokmill("memory", "--parameters", "1T", "--gpu", "T4").out.split()[1:3] == [
        "does",
        "not",
    ]
