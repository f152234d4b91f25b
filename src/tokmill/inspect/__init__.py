"""A dataset as a person sees it: samples in text, what is trained, statistics, the summary."""
