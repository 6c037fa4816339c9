"""The two towers f and g, scores, losses and the objective."""
