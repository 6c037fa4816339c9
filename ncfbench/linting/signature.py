"""The arguments of a loss: which tensor each is, by its name, and which are options."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ncfbench.catalog.infos import EncoderInfo
from ncfbench.errors import UsageError, reason

VIEW = r"(embs?|embeddings?|x|z|h|v|out|outputs?|features?|views?|reps?)"
ITEM = r"((items?|cand|candidate|pos|positive|doc|document)_?)?"
NUMBER = r"(scores?|logits?|sims?|similarit(y|ies)|pred(iction)?s?)"
IDS = r"(ids?|idx|index|indices)"
COUNTS = r"(counts?|freqs?|frequenc(y|ies)|degrees?)"
PROBABILITY = r"prob(s|abilit(y|ies))?"
TABLE = r"(table|per_item|by_item)"
ROLES: Mapping[str, str] = {
    "users": rf"users?|u|f|quer(y|ies)|anchors?|sources?|images?|left|{VIEW}_?(1|a)",
    "items": (
        r"items?|v|g|i|candidates?|documents?|docs?|passages?|texts?|right|keys|positive_?keys?"
        rf"|{VIEW}_?(2|b)"
    ),
    "positives": r"pos|positives?|pos_?items?|positive_?items?|item_?i|p",
    "negatives": r"(hard_?)?neg(ative)?s?(_?(items?|keys?|docs?|passages?))?|item_?j|j|n",
    "scores": (
        r"(in_?batch_?)?(scores?|logits?|sims?|similarit(y|ies))(_?mat(rix)?|_per_(user|query|image))?"
        r"|s|inputs?|y_?(pred|hat)|preds?|predictions?"
    ),
    "positive_scores": (
        rf"(pos(itives?)?|p)_?{NUMBER}|{NUMBER}_?pos(itives?)?|true_?logits|[xy]_?ui"
    ),
    "negative_scores": (
        rf"(neg(atives?)?|n)_?{NUMBER}|{NUMBER}_?neg(atives?)?|sampled_?logits|[xy]_?uj"
    ),
    "user_ids": rf"(users?|query|anchor)_?{IDS}|uids?",
    "item_ids": rf"{ITEM}{IDS}|iids?",
    "negative_ids": rf"neg(ative)?s?_?(item_?)?{IDS}",
    "probability": rf"{ITEM}(sampling_?)?({PROBABILITY}|p|q|share|pop|popularit(y|ies))",
    "log_probability": rf"{ITEM}log_?(q|p|{PROBABILITY}|pop(ularity)?|{COUNTS})(_correction)?",
    "counts": rf"{ITEM}{COUNTS}",
    "negative_probability": rf"neg(ative)?_?(sampling_?)?({PROBABILITY}|p|q)",
    "negative_log_probability": rf"neg(ative)?_?log_?(q|p|{PROBABILITY})",
    "probability_table": rf"(all_?)?(item_?)?({PROBABILITY}|popularity|p|q)_?{TABLE}",
    "log_probability_table": rf"(item_?)?log_?(q|p|{PROBABILITY})_?{TABLE}",
    "counts_table": rf"(item_?)?{COUNTS}_?{TABLE}",
    "linked": (
        r"(is_?)?(linked|links)|is_?positive|pos(itives?)?_?mask|known_?positives?"
        r"|false_?negatives?(_?mask)?"
    ),
    "row_weights": r"((sample|row|example|instance|pair|link)_?)?weights?",
    "negative_mask": (
        r"(valid_?)?neg(ative)?s?(_?(valid|real|pad(ding)?))?_?masks?|(is_?)?valid_?neg(ative)?s?"
    ),
    "row_mask": (
        r"((sample|row|example|batch|loss|valid|user|item)_?)?masks?|(is_?)?(valid|real)(_?rows?)?"
        r"|(is_?)?pad(ded|ding)?(_?masks?|_?rows?)?"
    ),
    "labels": r"labels?|targets?|y_?true|y",
    "key": r"key|rng|rng_?key|generator",
    "batch_size": r"batch_?size|b",
    "n_items": r"(n|num)_?items?|catalog(ue)?_?size|vocab(ulary)?_?size",
}  # fmt: skip
"""Meaning of an argument, and the names that it goes by."""
MEANINGS: Mapping[str, str] = {
    "probability": "share of the training links that the row's item has",
    "log_probability": "logarithm of the share of the training links that the row's item has",
    "counts": "number of training links that the row's item has",
    "linked": "whether the user has another training link with the item",
    "row_mask": "mask of padding rows",
    "negative_mask": "mask of padding among the drawn negatives",
    "batch_size": "number of rows of a full batch",
    "key": "source of randomness",
}
"""Descriptions of meanings whose names do not say what is given."""
SUFFIX = r"_?(e|h|z|vec(tor)?s?|emb(edding)?s?|rep(r(esentation)?)?s?|features?|(tower_?)?outputs?)"
PREFIX = r"(e|h|emb(edding)?s?|rep(resentation)?s?|vec(tor)?s?)_"
SHORT = {"q": "query", "k": "keys"}
"""Words for vectors that mean something else alone."""
VECTORS = ("users", "items", "negatives")
SCORES = ("scores", "positive_scores", "negative_scores")
CONSTANTS = (
    *("batch_size", "n_items"),
    *("probability_table", "log_probability_table", "counts_table"),
)
"""Meanings that a constructor's argument can have."""
SHAPES = """\
A loss is a function of one batch of b links, and returns one number. Its arguments go by name:
  (users, items)                      float [b, D]: vectors; row i is the positive link i
  (users, items, negatives)           negatives float [b, k, D]: drawn for each link
  (scores)                            float [b, b]: users by the batch's items, positives diagonal
  (positive_scores, negative_scores)  float [b] and [b, k]
  (scores, labels)                    float [n] and 0 or 1
and, if it wants them: user_ids, item_ids, negative_ids; probability, log_probability or counts of
each link's item, and negative_probability; linked, bool [b, b]; sample_weight or mask, [b];
negative_mask, [b, k]; batch_size, n_items, key."""


@dataclass(frozen=True)
class Loss:
    """A user's loss, ready to be called.

    Attributes:
        roles: meaning of each argument of a call that gets a tensor or a constant.
        made_from: the same of the constructor.
        options: the arguments with defaults, by name, those of the constructor and of the call.
    """

    name: str
    target: Any
    roles: Mapping[str, str]
    made_from: Mapping[str, str]
    options: Mapping[str, Any]
    is_class: bool
    of_constructor: frozenset[str]

    def bind(self, options: Mapping[str, Any], constants: Mapping[str, Any]) -> Callable[..., Any]:
        """Return the loss with some options, as a function of keyword arguments.

        Args:
            constants: values of the constructor's own arguments, by meaning.
        """
        given = {name: options[name] for name in options if name not in self.of_constructor}
        target = self.target
        if self.is_class:
            arguments = {name: constants[role] for name, role in self.made_from.items()}
            arguments |= {name: options[name] for name in options if name in self.of_constructor}
            try:
                target = self.target(**arguments)
            except Exception as error:
                raise UsageError(
                    f"{self.name} cannot be made: {type(error).__name__}: {reason(error)}."
                ) from error
        return lambda **arrays: target(**arrays, **given)

    def has(self, *roles: str) -> bool:
        """Return whether an argument has one of some meanings."""
        return any(role in (*self.roles.values(), *self.made_from.values()) for role in roles)


def role_of(name: str, known: frozenset[str] = frozenset()) -> str:
    """Return the meaning of an argument by its name; empty where it has none."""
    name = re.sub(r"_[a-zA-Z]+x[a-zA-Z]\w*$", "", name)  # of a shape: users_BxD
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip("_").lower()
    is_vector = re.fullmatch(f"{PREFIX}(?P<word>.+)", plain) or re.fullmatch(
        f"(?P<word>.+?){SUFFIX}", plain
    )
    bare = is_vector["word"] if is_vector else plain
    for word in (plain, SHORT.get(bare, bare) if is_vector else bare):
        for role, names in ROLES.items():
            if re.fullmatch(names, word):
                if role == "positives":
                    return "items" if known & {"users"} or is_vector else "positive_scores"
                if role == "negatives" and not (known & {"users"} or is_vector):
                    return "negative_scores"
                return role
    return ""


def read_loss(target: Any, options: Mapping[str, Any] | None = None) -> Loss:
    """Read the signature of a loss.

    Args:
        target: ``module:name``, or the function, class or object itself.
        options: values of arguments that replace their defaults.

    Raises:
        UsageError: it cannot be imported, or its arguments are none that a loss has.
    """
    name = target if isinstance(target, str) else getattr(target, "__name__", type(target).__name__)
    if isinstance(target, str):
        if not all(target.partition(":")):
            raise UsageError(f"{target!r} is no loss: name it as module:name, such as my:loss.")
        target = EncoderInfo(path=target).load()
    options = dict(options or {})
    if not callable(target):
        kind = type(target).__name__
        raise UsageError(f"{name} is of type {kind}, which cannot be called.\n{SHAPES}")
    if _is_of_sentence_transformers(target):
        target = _with_vectors(target)
    is_class = inspect.isclass(target)
    made_from: dict[str, str] = {}
    settings: dict[str, Any] = {}
    if is_class:
        of_class = _parameters(target.__init__ if "__init__" in dir(target) else target, name)
        made_from, settings, unknown = _split(of_class, _constant_of, options)
        if unknown:
            raise UsageError(
                f"{name} cannot be made without {unknown!r}: give it a value with --set"
                f" {unknown}=VALUE."
            )
    method = call_of(target)
    if is_class and method is target:
        raise UsageError(f"{name} has no method forward, call or __call__ that returns a loss.")
    parameters = _parameters(method, name)
    known = frozenset(role_of(parameter.name) for parameter in parameters)
    roles, of_call, unknown = _split(parameters, partial(role_of, known=known), options)
    if unknown:
        raise UsageError(
            f"{name} has an argument {unknown!r}, which no batch provides: rename it, or give it a"
            f" value with --set {unknown}=VALUE.\n{SHAPES}"
        )
    values = settings | of_call
    if extra := sorted(options.keys() - values.keys()):
        raise UsageError(f"{name} has no argument {extra[0]!r}. It has: {', '.join(values)}.")
    loss = Loss(name, target, roles, made_from, values, is_class, frozenset(settings))
    complete = (("users", "items"), ("scores",), ("positive_scores", "negative_scores"))
    if not any(all(role in roles.values() for role in shape) for shape in complete):
        shown = ", ".join(parameter.name for parameter in parameters) or "nothing"
        raise UsageError(f"{name}({shown}) takes neither vectors nor scores of links.\n{SHAPES}")
    return loss


def _split(
    parameters: Sequence[inspect.Parameter],
    meaning: Callable[[str], str],
    options: Mapping[str, Any],
) -> tuple[dict[str, str], dict[str, Any], str]:
    """Return the meanings of a signature's arguments, the values of its options, and the first
    argument that is neither.
    """
    roles: dict[str, str] = {}
    values: dict[str, Any] = {}
    unknown = ""
    for parameter in parameters:
        name, role = parameter.name, meaning(parameter.name)
        has_value = parameter.default is not parameter.empty or name in options
        # A batch's arguments have no default, or None.
        is_given = name not in options and (not has_value or parameter.default is None)
        if role and role not in roles.values() and is_given:
            roles[name] = role
        elif has_value:
            values[name] = options.get(name, parameter.default)
        else:
            unknown = unknown or name
    return roles, values, unknown


def _constant_of(name: str) -> str:
    """Return the meaning of a constructor's argument; empty where it has none."""
    role = role_of(name)
    return next((name for name in (f"{role}_table", role) if name in CONSTANTS), "")


def _parameters(function: Any, name: str) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} has no signature ({reason(error)}).\n{SHAPES}") from error
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind not in kinds and parameter.name != "self"
    ]
    if nameless := [
        parameter.name for parameter in named if parameter.kind is parameter.POSITIONAL_ONLY
    ]:
        raise UsageError(f"{name} takes {nameless[0]!r} by position alone: leave its '/' out.")
    return named


def call_of(target: Any) -> Any:
    """Return the function whose arguments a call has."""
    if inspect.isfunction(target) or inspect.ismethod(target) or hasattr(target, "func"):
        return target
    for name in ("forward", "call", "__call__"):
        method = getattr(target, name, None)
        if inspect.isfunction(method) or inspect.ismethod(method):
            return method
    return target


def _is_of_sentence_transformers(target: Any) -> bool:
    forward = getattr(target if inspect.isclass(target) else type(target), "forward", None)
    return forward is not None and "sentence_features" in inspect.signature(forward).parameters


class _Passing:
    """A model of sentence-transformers whose sentence vectors are its input."""

    def __getitem__(self, index: int) -> Any:
        return self  # its first module, which some losses look at

    def __call__(self, features: Any) -> Any:
        return {"sentence_embedding": features["vectors"]}


def _of_vectors(loss: Any, users: Any, items: Any) -> Any:
    torch: Any = sys.modules["torch"]
    return loss([{"vectors": side} for side in (users, items)], torch.arange(len(users)))


def _with_vectors(target: Any) -> Any:
    """Return a loss of sentence-transformers as one of vectors: its model passes them on."""
    make: Any = partial(target, _Passing())
    if not inspect.isclass(target):
        target.model = _Passing()
        return partial(_of_vectors, target)

    class OfVectors:
        """The loss, with a model that passes vectors on."""

        def __init__(self, **options: Any) -> None:
            self.loss = make(**options)

        def __call__(self, users: Any, items: Any) -> Any:
            return _of_vectors(self.loss, users, items)

    OfVectors.__init__.__signature__ = inspect.signature(make)  # type: ignore[attr-defined]
    return OfVectors
