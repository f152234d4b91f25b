"""Tokenizers: loading, control tokens, variants, decoding.

`tokenizer` loads one from any file that `files` finds, and `end_of_text` finds its eos.
`sentencepiece_model` and `tiktoken_file` convert their formats into a tokenizer.json;
`tokenizer_json` reads and writes its parts, and `equivalent_json` rewrites it for the fast engines.
`control_tokens` and `continuation` make variants. `decode` and `byte_lengths` map ids to text.
"""
