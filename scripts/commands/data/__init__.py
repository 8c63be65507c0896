"""The commands of `merlin-sim data`: what makes, changes and checks datasets."""
