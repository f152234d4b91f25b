"""The former names of the functions of the bill."""

from __future__ import annotations

import pytest

from tokmill import bill, memory

TINY = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100}


def old(name: str, now: str):
    expected = rf"tokmill\.memory\.{name} is now tokmill\.bill\.{now}$"
    with pytest.warns(DeprecationWarning, match=expected):
        return getattr(memory, name)


def test_former_functions_warn_and_return_plain_values():
    training = old("training_memory", "training")(TINY, gpus=2)
    assert training == bill.training(TINY, gpus=2).as_json()
    inference = old("inference_memory", "inference")(TINY, batch=2)
    assert inference == bill.inference(TINY, batch=2).as_json()
    host = old("host_memory", "host")(TINY, gpus=2)
    assert host["moments"] == bill.host(TINY, gpus=2).as_json()["moments"]
    assert old("count_parameters", "count_parameters")(TINY) == bill.count_parameters(TINY)
    by_module = old("parameters_by_module", "parameters_by_module")(TINY)
    assert by_module == bill.parameters_by_module(TINY)


def test_the_disk_of_a_directory_is_asked_for_by_its_former_name(tmp_path):
    with pytest.raises(Exception, match="not a tokmill dataset"):
        old("disk_memory", "disk")(tmp_path)


def test_a_name_that_never_was_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        memory.nothing  # noqa: B018
