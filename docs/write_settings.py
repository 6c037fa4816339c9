"""Write docs/settings.md, the settings reference, from the catalog.

Repeat with ``python docs/write_settings.py > docs/settings.md``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ncfbench.catalog import BUILT_IN, INFOS
from ncfbench.config import all_settings, default_text, users_of
from ncfbench.settings import PANELS, Setting

HEAD = """# Settings

Made from the catalog by `python docs/write_settings.py`; do not edit it by hand.

Every setting is a key of a TOML file (`--config FILE.toml`), a `--set key=value`, and, unless it is
marked, an option of `ncfbench run`: `batch_size` is `--batch-size`. Other commands have the options
that matter to them. [files.md](files.md) says which source wins.

"Tried" are the values that `ncfbench advise` tries by default, as far as the data allow.
"Used by" names the samplers, losses or encoders whose runs a setting changes; without one it
changes every run. A setting that a run does not use is no part of its identity: `--resume`, sweeps
and reports treat two runs that differ only in it as one. The settings of
plug-ins stand in their own records, and not on this page.
"""


def settings_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([HEAD, *(line for panel in PANELS for line in _panel(panel))])


def _panel(panel: str) -> Iterator[str]:
    settings = [each for each in all_settings().values() if each.panel == panel]
    if not settings:
        return
    yield f"## {panel}\n"
    yield "| setting | default | valid | tried | used by | meaning |"
    yield "|---|---|---|---|---|---|"
    for setting in settings:
        mark = "" if setting.has_flag else " (no option)"
        cells = (
            f"`{setting.name}`{mark}",
            str(setting.default).lower() if setting.type == "bool" else default_text(setting),
            _valid(setting),
            ", ".join(str(value).lower() for value in setting.tried),
            ", ".join(users_of(setting)),
            setting.help,
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def _valid(setting: Setting) -> str:
    if setting.name in BUILT_IN:
        return ", ".join(BUILT_IN[setting.name]) + ", or a plug-in" * bool(
            INFOS[setting.name].group
        )
    words = {"int": "whole number", "float": "number", "bool": "", "str": ""}[setting.type]
    return ", ".join(filter(None, [words, setting.range]))


if __name__ == "__main__":
    print(settings_page(), end="")
