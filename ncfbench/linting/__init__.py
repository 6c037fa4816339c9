"""The lint: whether a user's own loss and batches do what they are meant to."""
