"""Word pieces: the tokens of a pretrained model, by its own tokenizer.

The tokenizer is read from the model's folder, ``tokenizer.json`` or ``vocab.txt``, by the package
``tokenizers``. A token's id in the data set is its id in the model; id 0 must be padding, as in
BERT and its descendants.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from ncfbench.errors import DataError, UsageError, install_command, reason

FILES = ("tokenizer.json", "vocab.txt")
"""Files of a tokenizer; the first one that is there is read."""
CONFIG = "tokenizer_config.json"
PADDING, BEGIN, END = "[PAD]", "[CLS]", "[SEP]"


class Pieces:
    """A pretrained model's tokenizer.

    Args:
        folder: of the model.
        max_length: pieces kept of a text.

    Raises:
        DataError: a file is missing or damaged, or the vocabulary is none of BERT's kind.
        UsageError: the package ``tokenizers`` is not installed.
    """

    def __init__(self, folder: Path, max_length: int) -> None:
        self.max_length = max_length
        self._tokenizer = _read(tokenizer_file(folder), folder)
        self.ids: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        ordered = sorted(self.ids, key=lambda piece: self.ids[piece])
        if [self.ids[piece] for piece in ordered] != list(range(len(ordered))):
            raise DataError(f"The tokenizer in {folder} leaves out ids. Use one of BERT's kind.")
        if self.ids.get(PADDING) != 0 or BEGIN not in self.ids or END not in self.ids:
            raise DataError(
                f"The tokenizer in {folder} is none of BERT's kind: {PADDING} must have the id 0,"
                f" and {BEGIN} and {END} an id."
            )
        self.words = tuple(ordered[1:])
        """The pieces of the ids 1, 2, ..."""

    def __call__(self, text: str) -> list[str]:
        """Return the pieces of a text, without the ones that begin and end it."""
        pieces: list[str] = self._tokenizer.encode(text, add_special_tokens=False).tokens
        return pieces

    def whole(self, pieces: Iterable[str]) -> list[str]:
        """Return pieces as a model takes them, cut to the length, with those that begin and end
        them; none where there are none.
        """
        kept = list(islice(pieces, self.max_length - 2))
        return [BEGIN, *kept, END] if kept else []


def require_package(package: str, flag: str) -> None:
    """Refuse a flag that needs a package that is not installed."""
    if importlib.util.find_spec(package) is None:
        raise UsageError(
            f"{flag} needs the package {package}. Install it: {install_command('bert')}"
        )


def tokenizer_file(folder: Path) -> Path:
    """Return the file of a model's tokenizer; a DataError where there is none."""
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"{folder} holds no tokenizer: neither {' nor '.join(FILES)} is there. Name the folder of a"
        " pretrained model."
    )


def tokenizer_digest(folder: Path) -> str:
    """Return the SHA-256 (hexadecimal) of a model's tokenizer; see :func:`tokenizer_file`."""
    path = tokenizer_file(folder)
    digest = hashlib.sha256(path.read_bytes())
    if path.name == FILES[1]:
        digest.update(str(_is_lowercase(folder)).encode())
    return digest.hexdigest()


def _read(path: Path, folder: Path) -> Any:
    require_package("tokenizers", "--tokenizer")
    import tokenizers

    try:
        if path.name == FILES[0]:
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
        else:
            tokenizer = tokenizers.BertWordPieceTokenizer(
                str(path), lowercase=_is_lowercase(folder)
            )._tokenizer
    except Exception as error:  # the package raises Exception itself
        raise DataError(f"{path} is damaged: {reason(error)}.") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _is_lowercase(folder: Path) -> bool:
    """Return whether texts are lower-cased before a ``vocab.txt`` splits them."""
    try:
        settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        return bool(settings.get("do_lower_case", True))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"{folder / CONFIG} is damaged: {reason(error)}.") from error
