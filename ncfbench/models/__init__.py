"""The two towers f and g, the interaction r, losses and the objective."""

import jax

# In full float32: on an NVIDIA GPU JAX would use TF32. A training step may ask for less.
jax.config.update("jax_default_matmul_precision", "float32")
