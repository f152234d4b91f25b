"""The promises of tokmill, each with the tests that hold it.

A promise whose tests are renamed or removed fails here, so that none is lost unseen.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

PROMISES = {
    "no step gives damaged bytes new, right checksums": [
        "faults/test_damaged_inputs.py::test_a_step_refuses_damage_of_what_it_reads",
        "faults/test_damaged_inputs.py::test_damage_of_what_a_step_does_not_read_stays_visible",
    ],
    "the same bytes for any number of workers, threads and blocks, and any engine": [
        "run/test_same_bytes.py::test_engine_threads_and_batches_change_no_byte",
        "run/test_same_bytes.py::test_workers_change_no_byte",
        "run/test_sft_same_bytes.py::test_engine_workers_threads_and_batches_change_no_byte",
        "run/test_part_writer.py::test_where_shards_end_does_not_depend_on_where_blocks_end",
        "dataset/test_part_writer.py::test_the_bytes_depend_on_documents_alone",
        "run/importing/test_parts.py::test_workers_write_the_same_bytes",
    ],
    "what is checked, and the record of it, is the same for any workers, threads and blocks": [
        "run/test_same_bytes.py::test_neither_workers_threads_nor_batches_change_what_is_checked",
        "run/test_part.py::test_an_exact_fast_engine_is_checked_and_the_record_counts_it_for_any_block_size",
    ],
    "the same bytes for a run that was killed and started again": [
        "run/test_begin.py::test_a_run_that_is_killed_continues_to_the_same_bytes",
        "run/test_begin.py::test_a_part_killed_before_any_call_is_made_again_with_the_same_bytes",
        "run/importing/test_parts.py::test_an_import_that_is_killed_at_any_moment_continues",
    ],
    "an interrupt keeps the parts that are finished, and no byte depends on when": [
        "run/test_begin.py::test_an_interrupted_run_has_a_message_leaves_no_temporaries_and_continues",
        "run/test_begin.py::test_an_interrupt_before_the_first_part_is_done_says_that_nothing_is_kept",
    ],
    "an array, Ray and an object store give the bytes of one machine and a directory": [
        "run/test_tasks.py::test_an_array_makes_the_dataset_of_a_whole_run",
        "run/test_tasks.py::test_packs_of_an_array_are_those_of_a_whole_run",
        "run/importing/test_parts.py::test_the_tasks_of_an_array_import_the_files",
        "run/importing/test_parts.py::test_an_import_stands_in_a_store_that_fails",
        "cli/test_array.py::test_a_killed_task_is_started_again",
        "run/test_ray.py::test_tasks_write_to_a_store_that_fails",
        "place/test_s3_run.py::test_the_objects_are_the_files_of_a_directory_among_faults",
        "place/test_s3_run.py::test_an_array_in_a_store_among_faults_makes_the_same_objects",
    ],
    "two writers in one place never make a mixture": [
        "place/test_lock.py::test_a_directory_in_use_by_another_process_is_refused",
        "place/test_s3_run.py::test_two_runs_of_one_plan_do_the_work_twice_and_write_the_same",
        "place/test_s3_run.py::test_an_old_writer_that_wakes_up_leaves_the_new_dataset_whole_and_right",
        "run/test_tasks.py::test_a_run_that_takes_the_place_over_stops_a_task",
    ],
    "the same tokens for every container of the same records": [
        "run/test_same_bytes.py::test_all_containers_of_the_records_give_the_same_tokens",
        "run/test_sft_same_bytes.py::test_containers_of_the_same_records_give_the_same_samples",
    ],
    "every file is absent or whole, and the first record of a part wins": [
        "test_storage.py::test_a_committed_file_is_complete_and_read_only",
        "test_storage.py::test_chunks_become_one_file_or_none",
        "test_storage.py::test_the_first_commit_wins_where_it_is_asked_for",
        "dataset/test_writer.py::test_tokens_never_stand_without_index_and_sidecars",
        "run/test_part_writer.py::test_the_first_record_of_a_part_wins_and_another_one_is_refused",
    ],
    "a complete directory holds every file of its manifest and passes verify": [
        "dataset/test_verify.py::test_a_dataset_of_a_run_has_no_problem",
        "run/test_make_dataset.py::test_every_file_that_is_missing_or_truncated_is_made_again",
        "run/test_make_dataset.py::test_a_dataset_that_is_being_repaired_has_no_manifest",
        "run/test_make_dataset.py::test_a_file_that_is_removed_or_truncated_during_the_run_is_made_again",
        "run/test_make_dataset.py::test_a_run_whose_plan_is_removed_ends_without_a_manifest",
    ],
    "files that are not of the run's own plan are never removed, replaced or opened": [
        "run/test_output.py::test_nothing_is_removed_beside_a_foreign_file",
        "hostile/test_links.py::test_a_file_replaced_by_a_link_is_refused_in_a_stopped_output",
        "run/test_output.py::test_a_directory_with_a_foreign_plan_is_not_emptied",
        "run/test_output.py::test_a_resume_does_not_replace_a_foreign_file_with_the_name_of_a_shard",
        "dataset/test_verify.py::test_a_name_that_no_dataset_has_is_never_opened",
        "dataset/test_verify.py::test_a_link_in_place_of_a_file_is_not_followed",
    ],
    "other inputs, settings or tokenizers are an error that names what changed": [
        "run/test_make_refused.py::test_a_changed_setting_is_named",
        "run/test_make_refused.py::test_a_changed_tokenizer_is_named",
        "run/test_make_refused.py::test_a_file_that_grew_is_named_with_both_sizes",
        "run/test_make_refused.py::test_a_removed_an_added_and_a_reordered_file_are_named",
        "sources/test_hub.py::test_a_run_that_is_continued_reads_the_commit_that_it_began_with",
    ],
    "records in = documents + drops + rejects, by reason": [
        "run/test_part.py::test_progress_adds_up_to_the_record",
        "run/test_part_writer.py::test_records_are_counted_once_and_their_other_outcomes_as_extra",
        "dataset/test_verify.py::test_a_wrong_count_in_the_manifest_is_found",
    ],
    "input that cannot be read is an error, and counted in bytes where it is allowed": [
        "run/test_unread_input.py::test_every_break_is_reported_once_for_any_settings",
        "run/test_unread_input.py::test_a_run_that_accepts_unread_input_continues_and_counts_it",
        "run/test_unread_input.py::test_chats_that_break_off_are_reported_too",
        "sources/test_byte_reader.py::test_a_corrupt_frame_costs_its_slice_alone_and_every_byte_is_counted",
        "sources/test_json_formats.py::test_one_byte_too_many_or_too_few_gives_the_same_whatever_the_chunks",
    ],
    "a run that made no document is an error, and so is a loss over the limit": [
        "run/test_reject_limits.py::test_a_run_without_a_document_is_an_error_with_counts_by_reason",
        "run/test_reject_limits.py::test_a_file_with_only_rejects_is_an_error_with_the_first",
        "cli/test_bad_input.py::test_a_run_that_eats_the_wrong_file_is_stopped_unless_it_is_the_right_one",
        "run/test_reject_limits.py::test_a_sample_shows_that_a_run_would_stop",
    ],
    "peak memory does not grow with the corpus, whatever the container": [
        "run/test_memory_flat.py::test_a_corpus_is_never_in_memory",
        "sources/test_parquet.py::test_a_dictionary_of_one_text_is_decoded_a_block_at_a_time",
        "run/test_block_pool.py::test_threads_go_on_behind_a_slow_block_within_the_memory_of_blocks",
        "engines/test_engine_memory.py::test_two_engines_share_one_memory_limit_and_are_reloaded_together",
    ],
    "a dead worker is an error within seconds": [
        "run/test_workers.py::test_a_killed_worker_is_an_error_at_once_and_what_is_committed_stays",
        "run/test_workers.py::test_all_workers_killed_is_the_same_error",
        "run/test_workers.py::test_workers_vanish_with_their_parent",
    ],
    "a library call works from anywhere, and leaves nothing changed in its process": [
        "api/test_functions.py::test_it_can_be_called_on_two_workers_from",
        "api/test_functions.py::test_a_call_leaves_nothing_changed_in_the_process",
        "api/test_functions.py::test_an_interrupted_call_says_what_is_kept_and_leaves_no_process",
        "test_children.py::test_a_child_does_not_import_the_main_module_of_its_parent",
    ],
    "a dataset of thousands of shards is read with few files open": [
        "api/test_dataset.py::test_thousands_of_shards_are_opened_only_when_they_are_read_and_few_at_a_time",
    ],
    "tokens equal the reference tokenizer's, document by document, plus eos": [
        "run/test_choose_engine.py::test_a_wrong_engine_is_left_out_before_anything_is_written",
        "run/test_part.py::test_every_document_has_the_ids_of_the_library_and_eos",
        "run/test_part.py::test_an_engine_with_wrong_ids_stops_the_part_and_nothing_is_committed",
        "run/test_part.py::test_with_a_bos_and_wide_ids_documents_are_bos_ids_eos",
    ],
    "in split mode the trained tokens decode to the text to be trained": [
        "run/test_trained_text_is_exact.py::test_the_trained_text_is_the_replies_and_their_ends",
    ],
    "what a forecast says at most is not exceeded": [
        "run/test_forecast_holds.py::test_a_run_stays_below_the_upper_values_of_its_forecast",
        "run/test_forecast.py::test_a_sample_predicts_tokens_documents_and_disk_within_its_band",
        "bill/test_grid.py::test_every_peak_is_met_within_1_percent_and_categories_within_3",
        "bill/test_published_runs.py::test_torchtitans_runs_lie_between_the_bounds_and_within_15_percent_of_the_estimate",
        "bill/test_published_runs.py::test_pefts_runs_of_t0_3b_lie_between_the_bounds_and_within_15_percent_of_the_estimate",
        "bill/remedies/test_advice.py::test_a_plan_fits_and_none_of_its_remedies_can_be_left_out",
    ],
    "datasets with equal files of tokens have one identity, and are never changed under a reader": [
        "dataset/test_identity.py::test_the_same_tokens_have_one_identity_whatever_made_them",
        "dataset/test_identity.py::test_another_token_width_split_or_order_has_another_identity",
        "loader/test_replaced_dataset.py::test_the_same_tokens_go_on_and_resume",
        "loader/test_replaced_dataset.py::test_an_open_source_notices_another_dataset_of_equal_size",
        "loader/test_pack_source.py::test_a_loader_goes_over_pieces_and_on_with_its_index_when_another_replaces_it",
        "mixing/test_identity.py::test_a_finished_mix_stays_finished",
        "mixing/test_identity.py::test_a_mix_of_other_tokens_origins_or_fields_is_another",
    ],
    "a loader goes on where its state was saved, whatever batch, ranks and workers": [
        "loader/test_loader.py::test_a_state_goes_on_with_another_batch_and_world",
        "loader/test_phases.py::test_ranks_workers_and_resumes_change_nothing",
        "loader/test_phases.py::test_later_phases_may_change_on_resume",
        "loader/test_loader.py::test_the_sequence_does_not_depend_on_batch_ranks_or_workers",
        "loader/test_loader.py::test_an_epoch_has_every_window_exactly_once",
        "loader/test_loader.py::test_a_state_of_another_sequence_is_refused",
    ],
    "an export is what the trainer's own reader reads": [
        "oracles/test_megatron.py::test_megatron_reads_every_document_as_we_do",
        "oracles/test_olmo_core.py::test_rows_of_a_stream_hold_our_tokens_and_labels_where_our_mask_is_1",
        "oracles/test_trl_export.py::test_the_collator_returns_every_sample",
        "oracles/test_datasets_export.py::test_every_row_is_a_document",
        "trainers/test_megatron.py::test_megatron_core_reads_every_document",
        "oracles/test_bridge_export.py::test_the_collator_returns_every_sample",
        "trainers/test_litdata.py::test_its_own_reader_returns_every_block",
        "trainers/test_torchtitan.py::test_grain_returns_every_document",
        "trainers/test_nanogpt.py::test_a_changed_token_is_found_by_the_check",
    ],
    "a mix has the documents that it was asked for, and the same bytes after any stop": [
        "mixing/test_model.py::test_a_mix_is_what_a_model_says",
        "mixing/test_stopped.py::test_a_stopped_mix_goes_on",
        "mixing/test_plan.py::test_what_a_finished_mix_has_lost_is_made_again",
        "mixing/test_identity.py::test_a_stopped_mix_ends_after_its_input_was_made_again",
    ],
    "a dataset of an earlier version is read, mixed, exported and continued as before": [
        "frozen/test_frozen.py::test_a_frozen_dataset_is_read_through_every_door_as_when_it_was_made",
        "frozen/test_frozen.py::test_the_same_input_gives_the_files_that_are_frozen",
        "frozen/test_frozen.py::test_a_run_that_was_stopped_is_continued",
        "frozen/test_frozen.py::test_damage_of_a_frozen_dataset_is_found_with_the_same_message",
        "frozen/test_frozen.py::test_every_command_takes_a_frozen_dataset_of_each_kind",
        "frozen/test_frozen.py::test_the_newest_set_is_of_the_format_that_the_page_describes",
    ],
    "a dataset of a later version is refused, and nothing is changed": [
        "frozen/test_newer.py::test_every_command_refuses_a_later_version_and_changes_nothing",
        "frozen/test_newer.py::test_readers_in_python_refuse_a_later_version",
    ],
    "the format is what its page says: a program written from it alone reads the same": [
        "second_reader/test_second_reader.py::test_both_read_random_datasets_and_find_the_same_damages",
        "second_reader/test_second_reader.py::test_the_second_reader_reads_frozen_datasets_as_tokmill_does",
    ],
    "names that users write stay": [
        "test_stability.py::test_no_name_that_users_write_has_gone",
    ],
    "a message that names a command names one that works": [
        "cli/test_advice.py::test_what_a_message_advises_works",
        "cli/test_advice.py::test_each_message_that_names_a_command_is_met",
        "cli/test_made_by.py::test_a_command_for_tasks_says_what_stands_there",
        "cli/test_made_by.py::test_a_run_says_what_stands_there_and_replaces_it_if_it_is_told_to",
    ],
    "one user mistake is one line and a documented exit code": [
        "cli/test_bad_input.py::test_a_mistake_is_one_line",
        "cli/test_bad_input.py::test_no_space_is_one_line_and_the_same_command_completes_with_more",
        "cli/test_forged_manifests.py::test_a_forged_manifest_is_a_message_and_no_traceback",
        "cli/test_screen.py::test_an_error_drives_no_terminal",
        "run/test_interrupts.py::test_signals_in_any_number_at_any_moment_end_with_130_and_one_line",
    ],
    "a file of a stranger with a right sum is one line in every command": [
        "cli/test_forged_manifests.py::test_a_wrong_value_with_a_right_sum_is_one_line_in_every_command",
        "cli/test_forged_manifests.py::test_a_record_of_a_part_that_names_other_files_removes_none",
        "faults/test_hostile.py::test_hostile_manifests_plans_records_and_indexes_are_one_line",
    ],
    "a file of a dataset that is cut while it is open is one line, never a signal": [
        "api/test_cut_files.py::test_a_file_that_is_cut_while_it_is_open_is_one_line",
    ],
    "code comes from installed packages and from what the command names, never from a file": [
        "cli/test_code_of_plans.py::test_code_that_a_plan_names_is_not_imported_unless_the_command_names_it",
        "cli/test_code_of_plans.py::test_nothing_that_a_manifest_names_is_imported",
    ],
}


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names of the test functions of a file."""
    tree = ast.parse(path.read_bytes())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_is_held_by_tests_that_exist(promise: str) -> None:
    held_by = PROMISES[promise]
    assert held_by
    for test in held_by:
        file, name = test.split("::")
        assert name.startswith("test_")
        assert name in names_in(TESTS / file), f"{promise}: {test} does not exist"
