"""Content that a model reads, and that a data set must have."""

from __future__ import annotations

from ncfbench.catalog import find_encoder, find_user_tower
from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import UsageError
from ncfbench.models.encoders.protocol import DataFacts


def require_content(config: RunConfig, dataset: Dataset) -> None:
    """Refuse a model that reads what the data set does not have, by a UsageError, which says what
    to use instead.
    """
    data, encoder = DataFacts.of(dataset), find_encoder(config.encoder)
    if "features" in encoder.content and not data.item_features:
        raise UsageError(
            f"--encoder {config.encoder} reads dense features of items, and {config.dataset} has"
            " none. Prepare your data with --lsa 300 or --item-features FILE."
        )
    if encoder.content == ("text",) and not data.words:
        raise UsageError(
            f"--encoder {config.encoder} reads texts, and {config.dataset} has none. Use --encoder"
            " mlp, which reads its dense features."
        )
    for info in (encoder, find_user_tower(config.user_tower)):
        require = getattr(info.load(), "require", None)
        if require is not None:
            require(config, dataset)
