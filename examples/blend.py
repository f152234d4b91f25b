"""Three datasets, blended by shares, without equal documents, in one shuffled order."""

import tokmill

TOKENIZER = "data_samples/tokenizer"
INPUTS = {
    "wiki": "data_samples/records.jsonl",
    "web": "data_samples/documents.jsonl",
    "books": "data_samples/text",
}

directories = {}
for name, path in INPUTS.items():
    directories[name] = f"out/examples/{name}"
    tokmill.pretrain(path, tokenizer=TOKENIZER, output=directories[name])

blend = tokmill.mix(
    {directories["wiki"]: 0.8, directories["web"]: 0.1, directories["books"]: 0.1},
    tokens=10_000,
    shuffle=7,
    dedup=True,
    output="out/examples/blend",
)
print(blend)
for source in blend.manifest["mix"]["sources"]:
    print(f"{source['name']:22} {source['tokens']:6,} tokens, {source['epochs']:.2f} epochs")
