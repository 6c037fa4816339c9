"""The two towers f and g, the interaction r, losses and the objective."""
