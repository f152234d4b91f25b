"""The parts of `tokenizers+cache`: where a text can be split, and the ids of each pretoken.

A pretoken is the text between two split points. `split_rule` derives from a tokenizer.json where
texts can be split, `split_points` finds these points, `encoder` encodes new pretokens (`unigram`
those that begin inside a word), and `table` stores their ids.
"""
