"""Raw logs, and what preprocessing makes of them."""
