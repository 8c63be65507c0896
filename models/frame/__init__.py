"""What the blocks and models of every family share."""
