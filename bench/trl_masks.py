"""What trl's SFTTrainer does to a dataset before training: tokenize, and mask.

    python -m bench.trl_masks DATA.jsonl TOKENIZER TEMPLATE.jinja CORES OUT

The rows are `prompt` and `completion` texts, to which eos is added, or `messages` with a chat
template that has generation tags: trl 1.16, trl/trainer/sft_trainer.py, `tokenize_fn`. Prints the
seconds from opening the file to the dataset saved, imports and loading the tokenizer left out in
its favour, and the tokens.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def main(data: str, tokenizer_dir: str, template: str, cores: str, out: str) -> None:
    """Run it once."""
    from datasets import disable_caching, load_dataset
    from transformers import PreTrainedTokenizerFast

    disable_caching()
    config = json.loads((Path(tokenizer_dir) / "tokenizer_config.json").read_bytes())
    named = {key: config[key] for key in ("bos_token", "eos_token", "pad_token") if config.get(key)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(Path(tokenizer_dir) / "tokenizer.json"), **named
    )
    source = Path(template).read_text(encoding="utf-8") if template else None
    start = time.perf_counter()
    rows = load_dataset("json", data_files=data, split="train", cache_dir=f"{out}/cache")
    done = rows.map(
        prepare,
        fn_kwargs={"tokenizer": tokenizer, "template": source},
        num_proc=int(cores),
        remove_columns=rows.column_names,
    )
    done.save_to_disk(f"{out}/dataset")
    seconds = time.perf_counter() - start
    tokens = sum(len(ids) for ids in done.with_format("arrow")["input_ids"])
    print(json.dumps({"seconds": seconds, "tokens": tokens, "samples": len(done)}))


def prepare(row: dict[str, Any], tokenizer: Any, template: str | None) -> dict[str, Any]:
    """Return ids and mask of a row."""
    if "prompt" in row:
        prompt = tokenizer(text=row["prompt"])["input_ids"]
        ids = tokenizer(text=row["prompt"] + row["completion"] + tokenizer.eos_token)["input_ids"]
        length = next(
            (i for i, pair in enumerate(zip(prompt, ids, strict=False)) if pair[0] != pair[1]), None
        )
        length = len(prompt) if length is None else length
        return {"input_ids": ids, "mask": [0] * length + [1] * (len(ids) - length)}
    tools = row.get("tools")
    found = tokenizer.apply_chat_template(
        json.loads(row["messages"]) if isinstance(row["messages"], str) else row["messages"],
        tools=json.loads(tools) if tools else None,
        chat_template=template,
        tokenize=True,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    return {"input_ids": found["input_ids"], "mask": found["assistant_masks"]}


if __name__ == "__main__":
    main(*sys.argv[1:])
