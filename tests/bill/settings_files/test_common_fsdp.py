import pytest

from tokmill.bill.settings_files.common import fsdp_settings
from tokmill.bill.settings_files.section import Findings, Section


def found_in(tmp_path, values, *, config_is_enough=False):
    found = Findings()
    fsdp_settings(Section(tmp_path / "f", values), found, config_is_enough=config_is_enough)
    return found.settled()


@pytest.mark.parametrize(("enough", "training"), [(True, {"sharding": "fsdp"}), (False, {})])
def test_a_table_alone_turns_it_on_in_axolotl_only(tmp_path, enough, training):
    values = {"fsdp_config": {"fsdp_version": 2}}
    assert found_in(tmp_path, values, config_is_enough=enough).training == training


def test_weights_that_stay_gathered_are_noted(tmp_path):
    note = "fsdp: weights that stay gathered after forward count as in ZeRO-2"
    assert found_in(tmp_path, {"fsdp": "shard_grad_op"}).notes == (note,)
    assert found_in(tmp_path, {"fsdp": "full_shard"}).notes == ()


def test_a_strategy_by_another_name_is_listed(tmp_path):
    values = {"fsdp": True, "fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD"}}
    found = found_in(tmp_path, values)
    assert found.training == {"sharding": "fsdp"}
    assert found.not_read == ("fsdp_config.fsdp_sharding_strategy: HYBRID_SHARD",)
