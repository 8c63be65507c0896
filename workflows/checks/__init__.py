"""What a dataset holds that training would suffer from, found before any training."""
