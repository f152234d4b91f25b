"""The bill in a table: which model can be trained on which GPU, before one is rented."""

import tokmill

MODELS = ["smollm2-135m", "qwen2.5-0.5b", "llama-3.2-1b", "llama-3-8b"]
GPUS = ["RTX 4090", "A100 80GB", "H200"]

table = tokmill.bill.compare(
    axes={"model": MODELS, "gpu": GPUS},
    micro_batch=4,
    sequence="2k",
    precision="pure-16",
    checkpointing="full",
)
for row in table.alternatives:
    model, gpu = row.values
    print(f"{model:14} {gpu:10} {row.n_bytes / 2**30:6.1f} GiB   {row.verdict}")

print("\nOne of them in full:\n")
print(
    tokmill.bill.of(
        "llama-3-8b",
        gpu="H200",
        micro_batch=4,
        sequence="2k",
        precision="pure-16",
        checkpointing="full",
        tokens="1B",
    )
)
