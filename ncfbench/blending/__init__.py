"""Blending: a floor's scores and a run's, weighted by validation links, and vectors of both."""
