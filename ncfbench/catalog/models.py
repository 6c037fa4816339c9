"""Records of the built-in losses, encoders and user towers; all records by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncfbench.catalog.infos import EncoderInfo, Info, LossFamily, LossInfo, UserTowerInfo
from ncfbench.catalog.samplers import SAMPLERS
from ncfbench.settings import Kind, Setting


def _loss(name: str, title: str, family: LossFamily, **more: Any) -> LossInfo:
    path = f"ncfbench.models.losses:{name}"
    return LossInfo(path=path, title=title, uses=(), family=family, **more)


LOSSES: dict[str, LossInfo] = {
    "sg": _loss("SkipGram", "SG", "pointwise", lambda_=128.0),
    "mse": _loss("MeanSquaredError", "MSE", "pointwise", learning_rate=0.001, lambda_=8.0),
    "log": _loss("LogLoss", "Log", "pairwise", gamma=10.0),
    "hinge": _loss("Hinge", "Hinge", "pairwise", gamma=0.1),
    "softmax": _loss("SampledSoftmax", "Softmax", "listwise", gamma=10.0),
    "softmax-logq": _loss(
        "UsualSoftmax",
        "Softmax, usual logQ",
        "listwise",
        gamma=10.0,
        includes_positive=True,
        bias=(
            "the positive item is in every sample of its own link, and yet has the weight 1 / (n"
            " Q) of a draw instead of 1"
        ),
    ),
}


def _even_filters(values: Mapping[str, Any]) -> str:
    width = values["filter_width"]
    return "" if width % 2 else f"filter_width = {width}: it must be odd."


def _narrow_bag(values: Mapping[str, Any]) -> str:
    width, dimension = values["word_dimension"], values["dimension"]
    if not values["bare_bag"] or width == dimension:
        return ""
    return (
        f"bare_bag makes items' vectors of words', of word_dimension = {width} instead of"
        f" dimension = {dimension}. Use --set word_dimension={dimension}."
    )


def _uneven_heads(values: Mapping[str, Any]) -> str:
    width, heads = values["width"], values["heads"]
    if not (rest := width % heads):
        return ""
    return (
        f"width = {width} is not a multiple of heads = {heads}. Use for example --set"
        f" width={width - rest + heads}."
    )


def _encoder(
    path: str,
    title: str,
    *settings: Setting,
    uses: tuple[str, ...] = ("word_dimension", "word_dropout", "features", "feature_dropout"),
    **more: Any,
) -> EncoderInfo:
    more = {"tables": {"words": "words"}, **more}
    path = f"ncfbench.models.encoders.{path}"
    return EncoderInfo(path=path, title=title, settings=settings, uses=uses, **more)


ENCODERS: dict[str, EncoderInfo] = {
    "mf": _encoder(
        "mf:MatrixFactorization",
        "MF",
        uses=(),
        content=(),
        scores_cold_items=False,
        tables={"vectors": "items"},
    ),
    "cnn": _encoder(
        "cnn:Convolution",
        "CNN",
        Setting("filters", 50, "Filters of the convolution", at_least=1),
        Setting("filter_width", 3, "Words that a filter spans, an odd number", at_least=1),
        Setting(
            "convolution",
            "auto",
            "Computation of the convolution: plain, or from projected words; same result",
            choices=("auto", "plain", "projected"),
            shown="auto: projected on a CPU, else plain",
            changes="time",
        ),
        fault=_even_filters,
    ),
    "lstm": _encoder(
        "lstm:Lstm",
        "LSTM",
        Setting("lstm_units", 50, "Units of the recurrent layer", at_least=1),
        negatives=5,
    ),
    "bow": _encoder(
        "bow:BagOfWords",
        "BoW",
        Setting(
            "bare_bag", False, "The mean of the words is the item's vector", tried=(False, True)
        ),
        fault=_narrow_bag,
    ),
    "gru": _encoder(
        "gru:Gru",
        "GRU",
        Setting("gru_units", 50, "Units of the GRU in each direction", at_least=1),
        negatives=5,
    ),
    "transformer": _encoder(
        "transformer:Transformer",
        "Transformer",
        Setting("layers", 2, "Blocks of self-attention and a hidden layer", at_least=1),
        Setting("heads", 2, "Heads of the self-attention", at_least=1),
        Setting("width", 128, "Length of a word's vector, a multiple of heads", at_least=1),
        Setting("feed_forward", 512, "Units of the hidden layer in each block", at_least=1),
        uses=("word_dropout", "features", "feature_dropout"),
        fault=_uneven_heads,
    ),
    "bert": _encoder(
        "bert:Bert",
        "BERT",
        Setting(
            "checkpoint",
            "",
            "Pretrained model: folder of config.json, model.safetensors, tokenizer; or a digest",
            shown="needed",
        ),
        Setting(
            "pretrained_learning_rate",
            5e-05,
            "Adam's learning rate for the pretrained weights",
            panel="Training",
            above=0,
        ),
        uses=("features", "feature_dropout"),
        pretrained_parts=("pretrained",),
        is_costly=True,
    ),
    "mlp": _encoder(
        "mlp:FeatureMlp",
        "MLP",
        Setting("mlp_units", 128, "Units of a hidden layer", at_least=1, tried=(128, 1024)),
        Setting("mlp_layers", 1, "Hidden layers; 0: linear", at_least=0, at_most=16, tried=(0, 1)),
        uses=("feature_dropout",),
        content=("features",),
        tables={},
    ),
}
USER_TOWERS: dict[str, UserTowerInfo] = {
    "table": UserTowerInfo(
        path="ncfbench.models.user_towers:UserTable",
        title="Table",
        uses=(),
        tables={"vectors": "users"},
    ),
    "history": UserTowerInfo(
        path="ncfbench.models.user_towers:UserHistory",
        title="History",
        uses=("history_items",),
        settings=(
            Setting(
                "history_of",
                "ids",
                "Vectors of a history's items: rows of a table, layers over their dense features,"
                " or the sum of both",
                choices=("ids", "content", "both"),
                tried=("ids", "content", "both"),
            ),
            Setting("own_vector", False, "Add a free vector of each user", tried=(False, True)),
            Setting("user_units", 128, "Units of a hidden layer", at_least=1),
            Setting("user_layers", 1, "Hidden layers; 0: linear", at_least=0, at_most=16),
        ),
        content=("history",),
        tables={"vectors": "users", "items": "histories"},
    ),
}
BUILT_IN: Mapping[Kind, Mapping[str, Info]] = {
    "sampler": SAMPLERS,
    "loss": LOSSES,
    "encoder": ENCODERS,
    "user_tower": USER_TOWERS,
}


def own_settings() -> dict[str, Setting]:
    """Return the settings that built-in choices have as their own, by name."""
    records = [info for infos in BUILT_IN.values() for info in infos.values()]
    return {name: setting for info in records for name, setting in info.own.items()}
