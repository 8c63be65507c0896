"""Commands for trained models: gate, registry, drift."""
