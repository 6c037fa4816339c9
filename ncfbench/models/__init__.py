"""The two towers f and g, scores, losses and the objective."""

import os

import jax

# In full float32 unless the user's variable names another precision: on an NVIDIA GPU JAX would use
# TF32.
if "JAX_DEFAULT_MATMUL_PRECISION" not in os.environ:
    jax.config.update("jax_default_matmul_precision", "float32")
