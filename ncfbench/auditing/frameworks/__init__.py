"""Estimators as the frameworks make them, and their audit against what they claim to estimate."""
