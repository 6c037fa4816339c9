"""Audits of samplers: exact gradients, estimator tests, conformance."""
