"""Another name for :mod:`ncfbench.data.bert_checkpoint`."""

from ncfbench.data.bert_checkpoint import Architecture

__all__ = ["Architecture"]
