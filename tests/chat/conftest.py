from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tokmill.chat.control_strings import Vocabulary
from tokmill.chat.limits import Unlimited
from tokmill.chat.own_templates import NAMES, own_source
from tokmill.chat.render_pool import ChatRenderer, Writers
from tokmill.settings.sft import SftSettings
from tokmill.values import WHOLE_RECORD, Records, SampleBatch

STRINGS = (
    "<eos>", "<bos>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>",
    "</think>", "<tool_response>", "</tool_response>", "<|start_header_id|>", "<|end_header_id|>",
    "<|eot_id|>", "<|bos|>", "<|user_start|>", "<|user_end|>", "<|assistant_start|>",
    "<|assistant_end|>", "<|python_start|>", "<|python_end|>", "<|output_start|>", "<|output_end|>",
)  # fmt: skip


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    control = {string: number for number, string in enumerate(STRINGS)}
    return Vocabulary(control, "<eos>", "<bos>", {"eos_token": "<eos>", "bos_token": "<bos>"})


@pytest.fixture(scope="session")
def whole_records() -> Callable[[Sequence[str]], Records]:
    """Make records of lines of JSON that stand nowhere: row 0 is line 1."""

    def make(lines: Sequence[str]) -> Records:
        column = pa.array(lines, pa.large_string())
        places = np.array([(row + 1, -1) for row in range(len(lines))]).reshape(-1, 2)
        batch = pa.RecordBatch.from_arrays([column], names=[WHOLE_RECORD])
        return Records(batch, places, lambda _: b"raw", lambda _: [])

    return make


@pytest.fixture(scope="session")
def make_renderer(vocabulary: Vocabulary) -> Callable[..., ChatRenderer]:
    """Make a renderer of a built-in template: `make_renderer("chatml", turns="last")`."""

    def make(template: str, schema: str = "messages", **settings: Any) -> ChatRenderer:
        chosen = SftSettings(template=template, schema=schema, **settings)
        source = own_source(template) if template in NAMES else template
        write = partial(Writers(source, Unlimited()).write, vocabulary, chosen)
        return ChatRenderer(chosen, template, write)

    return make


@pytest.fixture(scope="session")
def shown() -> Callable[[SampleBatch], list[str]]:
    """Write samples with what is trained between « and », weights other than 1 before it."""

    def show(batch: SampleBatch) -> list[str]:
        texts = []
        for start, stop in zip(batch.offsets[:-1], batch.offsets[1:], strict=True):
            text, weight = "", 0.0
            for i in range(start, stop):
                new = float(batch.weights[i])
                if new != weight:
                    text += "»" * (weight > 0) + ("" if new in (0, 1) else f"{new:g}")
                    text += "«" * (new > 0)
                weight = new
                text += batch.text[i].as_py()
            texts.append(text + "»" * (weight > 0))
        return texts

    return show


@pytest.fixture(scope="session")
def show_messages(
    make_renderer: Callable[..., ChatRenderer],
    whole_records: Callable[[Sequence[str]], Records],
    shown: Callable[[SampleBatch], list[str]],
) -> Callable[..., list[str]]:
    """Give the samples of one conversation: roles and contents, or whole messages."""
    import json

    def show(template: str, *messages: Any, tools: Any = None, **settings: Any) -> list[str]:
        record: dict[str, Any] = {
            "messages": [
                m if isinstance(m, Mapping) else {"role": m[0], "content": m[1]} for m in messages
            ]
        }
        if tools is not None:
            record["tools"] = tools
        batch = make_renderer(template, **settings).render(whole_records([json.dumps(record)]))
        refused = [f"{reject.reason}: {reject.message}" for _, reject in batch.refused]
        dropped = [f"dropped: {reason}" for reason in batch.drops]
        return shown(batch) + refused + dropped

    return show
