"""Documents of finished datasets in another order: merged, shared, shuffled, without duplicates."""
