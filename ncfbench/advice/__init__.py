"""Advice: what to train with, found by a race within a budget of time."""
