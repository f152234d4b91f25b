"""The bill of a model and a dataset: formulas over plain values; `tokmill.bill` is its door."""
