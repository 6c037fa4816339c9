"""PyTorch, or what to do where it is not installed."""

from __future__ import annotations

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:  # pragma: no cover - the extra is not installed
    raise SystemExit(
        "This benchmark needs PyTorch. Install it with: pip install '.[bench]'"
    ) from None

__all__ = ["functional", "nn", "torch"]
