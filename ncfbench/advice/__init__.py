"""Advice: which sampler, batch and rate to train with, found by a race within a budget."""
