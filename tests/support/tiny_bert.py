"""A checkpoint of a few thousand random weights, and its text vector by definition."""

import json
import math

import numpy as np

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "green", "fish", "cat", "dog"]
PIECES += ["war", "s", "##s"]
PIECES += [f"w{number:04d}" for number in range(240)]
WIDTH, LAYERS, HEADS, HIDDEN, POSITIONS = 8, 2, 2, 12, 24
EPSILON = 1e-12


def weights_of(words):
    rng, result = np.random.default_rng(0), {}

    def add(name, *shape, mean=0.0, bias=True):
        for part, of in (("weight", shape), ("bias", shape[:1]))[: 1 + bias]:
            value = rng.normal(0, 0.4, of) + (mean if part == "weight" else 0.0)
            result[f"{name}.{part}"] = value.astype(np.float32)

    for name, count in (("word", words), ("position", POSITIONS), ("token_type", 2)):
        add(f"embeddings.{name}_embeddings", count, WIDTH, bias=False)
    add("embeddings.LayerNorm", WIDTH, mean=1.0)
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            add(f"{at}.attention.{name}", WIDTH, WIDTH)
        add(f"{at}.intermediate.dense", HIDDEN, WIDTH)
        add(f"{at}.output.dense", WIDTH, HIDDEN)
        for name in ("attention.output", "output"):
            add(f"{at}.{name}.LayerNorm", WIDTH, mean=1.0)
    return result


def write_checkpoint(
    folder, *, words=len(PIECES), pooling="mean", normalises=True, prefix="", **more
):
    """Write the files of a checkpoint in the usual layout; ``more`` changes ``config.json``."""
    from safetensors.numpy import save_file

    weights = weights_of(words)
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    save_file(
        {prefix + name: value for name, value in weights.items()}, folder / "model.safetensors"
    )
    config = {
        "model_type": "bert",
        "vocab_size": words,
        "max_position_embeddings": POSITIONS,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN,
        "layer_norm_eps": EPSILON,
        "hidden_act": "gelu",
    }
    (folder / "config.json").write_text(json.dumps(config | more))
    modes = {f"pooling_mode_{name}": which == pooling for name, which in MODES.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    kinds = ["Transformer", "Pooling", *["Normalize"] * normalises]
    modules = [{"type": f"sentence_transformers.models.{kind}"} for kind in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n", encoding="utf-8")
    return weights


MODES = {"cls_token": "first", "mean_tokens": "mean"}


def text_vector(weights, tokens, pooling, normalises):
    """The vector of one text, float64, word by word as BERT defines it."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}

    def norm(x, name):
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][tokens]
    x = x + w["embeddings.position_embeddings.weight"][: len(tokens)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    size = WIDTH // HEADS
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        q, k, v = (linear(x, f"{at}.attention.self.{name}") for name in ("query", "key", "value"))
        seen = np.zeros_like(x)
        for head in range(HEADS):
            part = slice(head * size, (head + 1) * size)
            scores = q[:, part] @ k[:, part].T / math.sqrt(size)
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            seen[:, part] = shares / shares.sum(axis=-1, keepdims=True) @ v[:, part]
        attended = linear(seen, f"{at}.attention.output.dense")
        x = norm(x + attended, f"{at}.attention.output.LayerNorm")
        hidden = linear(x, f"{at}.intermediate.dense")
        hidden = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
        x = norm(x + linear(hidden, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    vector = x[0] if pooling == "first" else x.mean(axis=0)
    return vector / np.linalg.norm(vector) if normalises else vector
