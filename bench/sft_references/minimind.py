"""minimind's `SFTDataset.generate_labels` over the text that its chat template writes.

Its random system messages and its random removal of empty think tags are left out.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bench.libraries import tokenizer_file
from bench.sft_references.foreign import load_file
from bench.sft_references.one_by_one import OneByOne
from bench.sft_references.transformers_chat import load_fast
from bench.sft_values import Case, Reference, Sample
from bench.values import NotMeasured
from tokmill.settings.sft import SftSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokmill.chat.conversation import Conversation

START, END = "<|im_start|>", "<|im_end|>"


def cases(tokenizer: Path, eos: str, source: Path, work: Path) -> Iterator[tuple[Case, Reference]]:
    """Return minimind's one template; eos and bos are what its code takes them for."""
    library = load_fast(tokenizer, END, START)
    library.chat_template = _template(tokenizer, source)
    module = load_file(source / "dataset" / "lm_dataset.py", ["datasets"])
    dataset = object.__new__(module.SFTDataset)  # its constructor reads a file of records
    dataset.tokenizer = library
    dataset.bos_id = library(f"{START}assistant\n", add_special_tokens=False).input_ids
    dataset.eos_id = library(f"{END}\n", add_special_tokens=False).input_ids
    reference = OneByOne(lambda one: _sample(dataset, one), searches_ids=True)
    settings = SftSettings(preset="minimind")
    yield Case(tokenizer, settings, "minimind, built in", END), reference


def _template(tokenizer: Path, source: Path) -> str:
    """Return minimind's own template: of its source, or of the tokenizer if that is minimind's."""
    beside = tokenizer_file(tokenizer).parent / "tokenizer_config.json"
    for path in (source / "model" / "tokenizer_config.json", beside):
        if path.exists():
            template = json.loads(path.read_bytes()).get("chat_template") or ""
            if "open_thinking" in template:
                return str(template)
    raise NotMeasured("minimind's chat template is not in its source")


def _sample(dataset: Any, conversation: Conversation) -> Sample:
    text = dataset.tokenizer.apply_chat_template(
        conversation.messages, tokenize=False, tools=conversation.tools
    )
    ids = dataset.tokenizer(text).input_ids
    dataset.max_length = len(ids)
    labels = dataset.generate_labels(ids)
    return Sample(ids, [int(label != -100) for label in labels])
