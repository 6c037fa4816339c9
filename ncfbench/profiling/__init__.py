"""Unit costs of an iteration, and the cost model that adds them up."""
