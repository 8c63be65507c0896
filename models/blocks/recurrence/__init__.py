"""How an interest evolves over a short history."""
