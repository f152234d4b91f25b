"""TRL packs as we do, and its collators take our tokens and masks as they are."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracles.conftest import import_or_skip
from tokmill.dataset.manifest import PackEntry
from tokmill.dataset.packing import pack
from tokmill.dataset.packs import open_packs
from tokmill.dataset.typed_json import from_json
from tokmill.settings.sft import SftSettings

SAMPLES = Path(__file__).parents[2] / "data_samples"
ROW = 512


@pytest.fixture(scope="module", autouse=True)
def reader() -> None:
    import_or_skip("torch", "datasets", "trl.data_utils", "trl.trainer.sft_trainer")


@pytest.fixture(scope="module")
def chats(make_chats):
    """The sample chats in several shards, packed into rows."""
    made = make_chats(
        SftSettings(too_long="drop-turns", packing=ROW), max_tokens=ROW, shard_tokens=8000
    )
    assert len(made.shards) > 2
    return made


@pytest.fixture
def columns(chats):
    """The columns of a dataset for SFTTrainer: ids, and labels of -100 where the mask is 0."""
    import datasets

    ids, labels = zip(*chats.samples(), strict=True)
    return datasets.Dataset.from_dict({"input_ids": ids, "labels": labels})


def trl_rows(lengths, capacity: int) -> list[list[int]]:
    """Return the lengths that stand together in TRL's rows, over the whole table."""
    from trl import data_utils as trl_data

    offsets = np.concatenate([[0], np.cumsum(lengths)])
    ids = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), np.zeros(offsets[-1], np.int8))
    rows = trl_data._pack_bfd(pa.table({"input_ids": ids}), capacity)
    found: list[list[int]] = rows["seq_lengths"].to_pylist()
    assert [len(row) for row in rows["input_ids"]] == [sum(row) for row in found]
    return found


def our_rows(lengths, capacity: int) -> list[list[int]]:
    packing = pack(np.asarray(lengths), capacity)
    packed = np.asarray(lengths)[packing.samples]
    return [row.tolist() for row in np.split(packed, packing.row_offsets[1:-1])]


def fills(rows: list[list[int]]) -> Counter[int]:
    return Counter(sum(row) for row in rows)


@pytest.mark.parametrize("capacity", [ROW, 1000, 4096])
def test_the_samples_of_a_dataset_fill_the_rows_that_trl_fills(chats, capacity):
    lengths = np.concatenate([shard.lengths for shard in chats.shards])
    ours, theirs = our_rows(lengths, capacity), trl_rows(lengths, capacity)
    assert len(ours) == len(theirs) > 1
    assert fills(ours) == fills(theirs)


@settings(deadline=None)
@given(st.lists(st.integers(1, 24), min_size=1, max_size=80), st.integers(24, 60))
def test_any_lengths_fill_the_rows_that_trl_fills(lengths, capacity):
    assert fills(our_rows(lengths, capacity)) == fills(trl_rows(lengths, capacity))


def pack_of(chats) -> PackEntry:
    return from_json(PackEntry, chats.manifest["packs"]["train"])


def test_trl_packs_our_columns_whole_into_the_rows_of_our_pack_index(chats, columns):
    from trl import data_utils as trl_data

    whole_table = {"batch_size": None}
    theirs = trl_data.pack_dataset(columns, ROW, "bfd", map_kwargs=whole_table)[:]
    found = []
    for ids, labels, lengths in zip(*(theirs[name] for name in theirs), strict=True):
        stops = np.cumsum(lengths)
        spans = [slice(stop - n, stop) for stop, n in zip(stops, lengths, strict=True)]
        found += [(ids[span], labels[span]) for span in spans]
    assert list(theirs) == ["input_ids", "labels", "seq_lengths"]
    assert sorted(found) == sorted(chats.samples())
    packs = open_packs(chats.directory, "train", pack_of(chats))
    sizes = np.array([len(ids) for ids in columns["input_ids"]])
    ours = [sizes[packs.row(i)].tolist() for i in range(packs.n_rows)]
    assert fills(theirs["seq_lengths"]) == fills(ours)


def test_the_collators_without_padding_keep_our_labels(columns):
    from transformers import DataCollatorWithFlattening
    from trl.trainer import sft_trainer

    examples = [columns[i] for i in range(32)]
    expected = [label for example in examples for label in example["labels"]]
    lengths = [len(example["input_ids"]) for example in examples]
    places = [place for length in lengths for place in range(length)]
    ours = sft_trainer.DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    for collate in (ours, DataCollatorWithFlattening(return_flash_attn_kwargs=True)):
        batch = collate(examples)
        # They leave the first token of a sample out, which is 0 in our masks already.
        assert batch["labels"].tolist() == [expected]
        assert batch["input_ids"].tolist() == [[i for e in examples for i in e["input_ids"]]]
        assert batch["position_ids"].tolist() == [places]
        assert batch["cu_seq_lens_q"].tolist() == np.cumsum([0, *lengths]).tolist()


def packed_examples(chats) -> list[dict[str, list[int]]]:
    """Return the rows of our pack index, with the lengths of their samples."""
    packs, samples = open_packs(chats.directory, "train", pack_of(chats)), chats.samples()
    rows = [[samples[i] for i in packs.row(row)] for row in range(packs.n_rows)]
    return [
        {
            "input_ids": [i for ids, _ in members for i in ids],
            "labels": [label for _, labels in members for label in labels],
            "seq_lengths": [len(ids) for ids, _ in members],
        }
        for members in rows
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_takes_rows_of_our_pack_index_as_they_are(chats, tmp_path):
    import datasets
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl.trainer import sft_trainer

    examples = packed_examples(chats)
    size = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    arguments = sft_trainer.SFTConfig(
        output_dir=str(tmp_path),
        dataset_kwargs={"skip_prepare_dataset": True},
        padding_free=True,
        max_length=None,
        per_device_train_batch_size=1,
        report_to=[],
        use_cpu=True,
    )
    trainer = sft_trainer.SFTTrainer(
        model=LlamaForCausalLM(LlamaConfig(vocab_size=64, num_hidden_layers=1, **size)),
        args=arguments,
        train_dataset=datasets.Dataset.from_list(examples),
        processing_class=PreTrainedTokenizerFast.from_pretrained(SAMPLES / "tokenizer"),
    )
    found = [
        {
            "input_ids": batch["input_ids"][0].tolist(),
            "labels": batch["labels"][0].tolist(),
            "seq_lengths": batch["cu_seq_lens_q"].diff().tolist(),
        }
        for batch in trainer.get_train_dataloader()
    ]
    by_ids = itemgetter("input_ids")
    assert sorted(found, key=by_ids) == sorted(examples, key=by_ids)
