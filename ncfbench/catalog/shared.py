"""Settings that every run has, with the paper's defaults."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial

from ncfbench.settings import setting_field, setting_of

_data, _sampler, _model, _training, _devices = (
    partial(setting_field, panel=panel)
    for panel in ("Data", "Sampler", "Model", "Training", "Devices")
)
"""Each declares a field in its panel of ``--help``."""
_some_samplers, _some_encoders = (
    partial(_sampler, used_by="sampler"),
    partial(_model, used_by="encoder"),
)
_untimed = partial(_training, changes="result")

MAX_SEED = 2**32 - 1
FLAGS = (
    *("dataset", "sampler", "encoder", "loss", "epochs", "seed"),
    *("batch_size", "learning_rate", "dimension", "devices"),
)
"""Settings with an option of ``ncfbench run``; the others are given by ``--set``."""


@dataclass(frozen=True, kw_only=True)
class SharedSettings:
    """Values of the settings that every run has; each field declares one."""

    dataset: str = _data("citeulike", "Prepared data set")
    sampler: str = _sampler(
        "strat-ns", "How mini-batches are built", tried=("strat-ns", "ns", "neg")
    )
    encoder: str = _model("cnn", "Item function g", tried=("bow", "mlp", "cnn", "mf"))
    loss: str = _training("sg", "Loss function", tried=("softmax", "log", "sg"))
    user_tower: str = _model("table", "User function f", tried=("table", "history"))
    coupling: str = _model(
        "direct",
        "Item vectors that training scores: g itself, or free ones pulled towards g",
        choices=("direct", "regularised"),
    )
    coupling_weight: float = _model(
        1.0,
        "Weight of the mean squared distance of free item vectors from g",
        at_least=0,
        used_by="coupling",
    )
    batch_size: int = _sampler(
        512, "b: positive links in a batch", at_least=1, tried=(256, 512, 1024, 2048)
    )
    stratum_size: int = _some_samplers(
        4, "s: positive links in a stratum", at_least=1, tried=(2, 4, 8)
    )
    negatives: int = _some_samplers(
        None,
        "k: negative links for each positive one",
        at_least=1,
        default_from="encoder",
        tried=(3, 10, 30),
    )
    strata: str = _some_samplers(
        "item", "What the links of a stratum share", choices=("item", "user")
    )
    uniform_items: int = _some_samplers(
        None, "k': items drawn uniformly into each batch", at_least=1, default_from="batch_size"
    )
    noise: str = _sampler(
        "unigram", "Noise distribution P_n: unigram, uniform, or an exponent of the item degree"
    )
    mask: bool = _some_samplers(True, "Leave linked pairs out of the negatives")
    epochs: int = _untimed(
        30,
        "Passes over the training links; 0: until validation recall has not risen for --set"
        " patience of them",
        at_least=0,
    )
    optimizer: str = _training(
        "auto",
        "Optimiser; auto: row-adam for large tables, else adam. row-adam and adagrad update only"
        " the rows that a batch uses",
        choices=("auto", "adam", "row-adam", "adagrad"),
    )
    learning_rate: float = _untimed(
        None,
        "The optimiser's learning rate",
        above=0,
        default_from="loss",
        tried=(0.001, 0.003, 0.01, 0.03),
    )
    weight_decay: float = _training(
        0.0,
        "Share of matrices and tables, times the learning rate, that each iteration takes away",
        at_least=0,
        at_most=1,
        tried=(0.0, 0.01, 0.1),
    )
    gamma: float | None = _untimed(
        None,
        "Margin of hinge, scale of the others",
        above=0,
        used_by="loss",
        default_from="loss",
        tried=(5.0, 10.0, 20.0),
    )
    lambda_: float | None = _untimed(
        None, "Weight of the negative term", above=0, used_by="loss", default_from="loss"
    )
    word_dropout: float = _some_encoders(
        0.5,
        "Share of words removed from a text in training",
        changes="result",
        at_least=0,
        below=1,
        tried=(0.0, 0.2, 0.5),
    )
    feature_dropout: float = _some_encoders(
        0.0,
        "Dropout on the items' dense features in training",
        at_least=0,
        below=1,
        tried=(0.0, 0.2),
    )
    item_dropout: float = _model(
        0.1,
        "Dropout on item embeddings in training",
        changes="result",
        at_least=0,
        below=1,
        tried=(0.0, 0.1, 0.3),
    )
    user_l2: float = _untimed(1e-6, "Weight of the users' squared norm", at_least=0)
    seed: int = _untimed(0, "Seed of parameters, batches and dropout", at_least=0, at_most=MAX_SEED)
    probe_every: int = _untimed(
        0,
        "Iterations between probes of the objective",
        at_least=0,
        shown="four in an epoch, one with bert",
    )
    dimension: int = _model(
        50, "Length of the user and item embeddings", at_least=1, tried=(50, 100, 300)
    )
    history_items: int = _model(
        50,
        "Maximum history length; longer histories are sampled once",
        used_by="user_tower",
        at_least=1,
    )
    word_dimension: int = _some_encoders(50, "Length of the word embeddings", at_least=1)
    features: str = _some_encoders(
        "add",
        "Dense features of items beside their texts: added to g through a linear layer, or ignored",
        choices=("add", "ignore"),
        tried=("add", "ignore"),
    )
    patience: int = _untimed(
        10,
        "Epochs without a better validation recall before the reported epoch is chosen",
        at_least=1,
    )
    probe_links: int = _training(
        16384, "Links of the probe, where the exact sum over all pairs is too long", at_least=1
    )
    probe_negatives: int = _training(64, "Draws from P_n for each link of the probe", at_least=1)
    item_block: int = _devices(
        0, "Items that g encodes at a time, for less memory; 0: all", changes="time", at_least=0
    )
    devices: int = _devices(
        1,
        "Devices that a batch is spread over; on a CPU simulated ones",
        changes="nothing",
        at_least=1,
        shown="1; of several processes all",
    )


SETTINGS = {
    setting.name: replace(setting, has_flag=setting.name in FLAGS)
    for setting in map(setting_of, fields(SharedSettings))
}
"""The settings that every run has, by name (``lambda`` without its underscore)."""
