"""Where embedding tables live: which rank has which rows and columns, and what that costs."""
