"""Settings that every run has, with the paper's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from ncfbench.settings import declared, setting_field

MAX_SEED = 2**32 - 1


@dataclass(frozen=True, kw_only=True)
class SharedSettings:
    """Values of the settings that every run has; each field declares one."""

    dataset: str = setting_field("citeulike", "Prepared data set", panel="Data")
    sampler: str = setting_field(
        "strat-ns", "How mini-batches are built", panel="Sampler", chooses="sampler"
    )
    encoder: str = setting_field("cnn", "Item function g", panel="Model", chooses="encoder")
    loss: str = setting_field("sg", "Loss function", panel="Training", chooses="loss")
    user_tower: str = setting_field("table", "User function f", panel="Model", chooses="user_tower")
    interaction: str = setting_field(
        "dot",
        "Score r(u, v) of a user's and an item's vector",
        panel="Model",
        chooses="interaction",
    )
    coupling: str = setting_field(
        "direct",
        "Item vectors that training scores: g itself, or free ones pulled towards g",
        panel="Model",
        choices=("direct", "regularised"),
    )
    coupling_weight: float = setting_field(
        1.0,
        "Weight of the mean squared distance of free item vectors from g",
        panel="Model",
        at_least=0,
        only_with=("coupling", "regularised"),
    )
    batch_size: int = setting_field(
        512, "b: positive links in a batch", panel="Sampler", at_least=1
    )
    stratum_size: int = setting_field(
        4,
        "s: positive links in a stratum",
        panel="Sampler",
        at_least=1,
        used_by="sampler",
    )
    negatives: int = setting_field(
        None,
        "k: negative links for each positive one",
        panel="Sampler",
        at_least=1,
        used_by="sampler",
        default_from="encoder",
    )
    strata: str = setting_field(
        "item",
        "What the links of a stratum share",
        panel="Sampler",
        choices=("item", "user"),
        used_by="sampler",
    )
    uniform_items: int = setting_field(
        None,
        "k': items drawn uniformly into each batch",
        panel="Sampler",
        at_least=1,
        used_by="sampler",
        default_from="batch_size",
    )
    noise: str = setting_field(
        "unigram",
        "Noise distribution P_n: unigram, uniform, or an exponent of the item degree",
        panel="Sampler",
    )
    mask: bool = setting_field(
        True, "Leave linked pairs out of the negatives", panel="Sampler", used_by="sampler"
    )
    unique_items: bool = setting_field(
        True, "Embed each distinct item of a batch once", panel="Sampler", used_by="sampler"
    )
    epochs: int = setting_field(30, "Passes over the training links", panel="Training", at_least=1)
    learning_rate: float = setting_field(
        None,
        "Adam's learning rate",
        panel="Training",
        above=0,
        default_from="loss",
        is_tunable=True,
    )
    gamma: float | None = setting_field(
        None,
        "Margin of hinge, scale of the others",
        panel="Training",
        above=0,
        default_from="loss",
    )
    lambda_: float | None = setting_field(
        None,
        "Weight of the negative term",
        panel="Training",
        above=0,
        default_from="loss",
    )
    word_dropout: float = setting_field(
        0.5,
        "Share of words removed from a text in training",
        panel="Model",
        at_least=0,
        below=1,
        used_by="encoder",
        is_tunable=True,
    )
    item_dropout: float = setting_field(
        0.1,
        "Dropout on item embeddings in training",
        panel="Model",
        at_least=0,
        below=1,
        is_tunable=True,
    )
    user_l2: float = setting_field(
        1e-6, "Weight of the users' squared norm", panel="Training", at_least=0
    )
    seed: int = setting_field(
        0,
        "Seed of parameters, batches and dropout",
        panel="Training",
        at_least=0,
        at_most=MAX_SEED,
    )
    probe_every: int = setting_field(
        0,
        "Iterations between probes of the objective; 0: four in an epoch, one with bert",
        panel="Training",
        at_least=0,
        shown="four in an epoch, one with bert",
    )
    dimension: int = setting_field(
        50, "Length of the user and item embeddings", panel="Model", at_least=1
    )
    word_dimension: int = setting_field(
        50, "Length of the word embeddings", panel="Model", at_least=1, used_by="encoder"
    )
    features: str = setting_field(
        "add",
        "Dense features of items beside their texts: added to g through a linear layer, or ignored",
        panel="Model",
        choices=("add", "ignore"),
        used_by="encoder",
    )
    word_vectors: str = setting_field(
        "",
        "Word vectors to begin with: a file of word2vec's or GloVe's text or .npy, or its digest",
        panel="Model",
        used_by="encoder",
        shown="random ones",
    )
    patience: int = setting_field(
        10,
        "Epochs without a better validation recall before the reported epoch is chosen",
        panel="Training",
        at_least=1,
    )
    probe_links: int = setting_field(
        16384,
        "Links of the probe, where the exact sum over all pairs is too long",
        panel="Training",
        at_least=1,
    )
    probe_negatives: int = setting_field(
        64, "Draws from P_n for each link of the probe", panel="Training", at_least=1
    )
    precision: str = setting_field(
        "float32",
        "Precision of the training step's products",
        panel="Devices",
        choices=("float32", "tf32", "bfloat16"),
    )
    iterations_per_dispatch: int = setting_field(
        0,
        "Iterations in one call of the compiled step; 0: by backend",
        panel="Devices",
        at_least=0,
        shown="by backend",
    )
    item_block: int = setting_field(
        0,
        "Items that g encodes at a time, computed again in the backward pass: less memory for"
        " large batches; 0: all",
        panel="Devices",
        at_least=0,
        zero_word="all",
        shown="all",
    )
    devices: int = setting_field(
        1,
        "Devices that a batch is spread over; on a CPU simulated ones",
        panel="Devices",
        at_least=1,
        shown="1; of several processes all",
    )
    share: str = setting_field(
        "global",
        "Items that are negatives on several devices, all or each device's own",
        panel="Devices",
        choices=("global", "local"),
    )
    shard_tables: bool = setting_field(
        False,
        "Spread embedding tables and their moments over the devices by row",
        panel="Devices",
    )
    tuned: str = setting_field(
        "",
        "Settings that sweep --tune chose, its trials and their epochs: learning_rate:8x10",
        panel="Training",
        has_flag=False,
        shown="set by sweep --tune",
    )


SETTINGS = declared(SharedSettings)
"""The settings that every run has, by name (``lambda`` without its underscore)."""
TUNABLE = tuple(name for name, setting in SETTINGS.items() if setting.is_tunable)
