"""What is shipped: gate, registry, drift."""
