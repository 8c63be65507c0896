"""Criteo's click logs: tab-separated days become a dataset directory."""
