"""The parts of `tokenizers+cache`: where a text can be split, and the ids of each pretoken.

A pretoken is the text between two split points. `split_rule` derives from a tokenizer.json where
texts can be split, `split_points` finds these points, `pretoken_ids` encodes new pretokens (with
`unigram` those that begin inside a word) and stores their ids.
"""
