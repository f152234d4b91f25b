import pytest

from tokmill.bill.settings_files.common import fsdp_settings
from tokmill.bill.settings_files.settings_file import SettingsFile


def found_in(tmp_path, values, *, config_is_enough=False):
    file = SettingsFile(tmp_path / "f", values)
    fsdp_settings(file, config_is_enough=config_is_enough)
    return file.result()


@pytest.mark.parametrize(("enough", "training"), [(True, {"sharding": "fsdp2"}), (False, {})])
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


def test_keys_of_the_table_may_have_a_prefix_and_are_listed_with_it(tmp_path):
    config = {"fsdp_offload_params": True, "activation_checkpointing": True, "fsdp_version": 2}
    found = found_in(tmp_path, {"fsdp": True, "fsdp_config": config})
    assert found.training == {"sharding": "fsdp2", "offload": "all", "checkpointing": "full"}
    assert found.not_read == ()


def test_a_table_beside_a_trainer_without_it_is_no_unread_key(tmp_path):
    assert found_in(tmp_path, {"fsdp": "", "fsdp_config": {"min_num_params": 1}}).not_read == ()
