"""What a dataset is: feature specs, channel contracts, Merlin schemas. No TensorFlow here."""
