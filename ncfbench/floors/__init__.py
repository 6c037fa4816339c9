"""Floors: recommenders that need no training by gradients, and the recall they reach."""
