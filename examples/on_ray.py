"""The parts of a run as tasks of Ray: a cluster, or this machine alone; needs ray."""

import tokmill

SAMPLES, TOKENIZER = "data_samples/records.jsonl", "data_samples/tokenizer"

here = tokmill.pretrain(
    SAMPLES, tokenizer=TOKENIZER, part_bytes="64KiB", output="out/examples/here"
)
on_ray = tokmill.pretrain(
    SAMPLES,
    tokenizer=TOKENIZER,
    part_bytes="64KiB",
    output="out/examples/on_ray",
    executor="ray",  # ray:HOST:PORT is a cluster elsewhere
)
print(on_ray)
print("the same tokens as on one process:", on_ray.identity == here.identity)
