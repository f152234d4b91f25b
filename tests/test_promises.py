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
    ],
    "what is checked, and the record of it, is the same for any workers, threads and blocks": [
        "run/test_same_bytes.py::test_neither_workers_threads_nor_batches_change_what_is_checked",
        "run/test_part.py::test_an_exact_fast_engine_is_checked_and_the_record_counts_it_for_any_block_size",
    ],
    "the same bytes for a run that was killed and started again": [
        "run/test_begin.py::test_a_run_that_is_killed_continues_to_the_same_bytes",
        "run/test_begin.py::test_a_part_killed_before_any_call_is_made_again_with_the_same_bytes",
    ],
    "an interrupt keeps the parts that are finished, and no byte depends on when": [
        "run/test_begin.py::test_an_interrupted_run_has_a_message_leaves_no_temporaries_and_continues",
        "run/test_begin.py::test_an_interrupt_before_the_first_part_is_done_says_that_nothing_is_kept",
    ],
    "an array, Ray and an object store give the bytes of one machine and a directory": [
        "run/test_tasks.py::test_an_array_makes_the_dataset_of_a_whole_run",
        "run/test_tasks.py::test_packs_of_an_array_are_those_of_a_whole_run",
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
