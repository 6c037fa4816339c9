"""The two towers f and g, scores, losses and the objective."""

import jax

# In full float32: on an NVIDIA GPU JAX would use TF32.
jax.config.update("jax_default_matmul_precision", "float32")
