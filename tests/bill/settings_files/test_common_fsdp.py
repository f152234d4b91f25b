import pytest

from tokmill.bill.settings_files.common import fsdp_settings
from tokmill.bill.settings_files.mapping import Findings
from tokmill.bill.settings_files.section import Section


def found_in(tmp_path, values, *, config_is_enough=False):
    found = Findings()
    section = Section(tmp_path / "f", values)
    fsdp_settings(section, found, config_is_enough=config_is_enough)
    return found.settled(section)


@pytest.mark.parametrize(("enough", "training"), [(True, {"sharding": "fsdp"}), (False, {})])
def test_a_table_alone_turns_it_on_in_axolotl_only(tmp_path, enough, training):
    values = {"fsdp_config": {"fsdp_version": 2}}
    assert found_in(tmp_path, values, config_is_enough=enough).training == training


def test_weights_that_stay_gathered_are_a_sharding_of_their_own(tmp_path):
    assert found_in(tmp_path, {"fsdp": "shard_grad_op"}).training == {"sharding": "fsdp-grad-op"}
    assert found_in(tmp_path, {"fsdp": "full_shard"}).training == {"sharding": "fsdp"}


def test_a_strategy_by_another_name_is_listed(tmp_path):
    values = {"fsdp": True, "fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD"}}
    found = found_in(tmp_path, values)
    assert found.training == {"sharding": "fsdp"}
    assert found.not_read == ("fsdp_config.fsdp_sharding_strategy: HYBRID_SHARD",)
