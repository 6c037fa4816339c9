"""Write docs/settings.md, the settings reference, from the catalog.

Repeat with ``python docs/write_settings.py > docs/settings.md``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ncfbench.catalog import FLAGS
from ncfbench.config import all_settings, setting_facts
from ncfbench.settings import PANELS

HEAD = f"""# Settings

Made from the catalog by `python docs/write_settings.py`; do not edit it by hand.
`ncfbench settings` prints the same, `ncfbench settings NAME` one of them.

Every setting is a key of a TOML file (`--config FILE.toml`), and is given to any command by
`--set NAME=VALUE`. [files.md](files.md) says which source wins. `ncfbench run` has the options
{", ".join(f"`--{name.replace('_', '-')}`" for name in FLAGS)}.

"Tried" are the values that `ncfbench advise` tries by default, as far as the data allow.
"Used by" names the samplers, losses or encoders whose runs a setting changes; without one it
changes every run. A setting that a run does not use is no part of its identity: sweeps
and reports treat two runs that differ only in it as one. The settings of
plug-ins stand in their own records, and not on this page.
"""


def settings_page() -> str:
    """Return the page as Markdown."""
    return "\n".join([HEAD, *(line for panel in PANELS for line in _panel(panel))])


def _panel(panel: str) -> Iterator[str]:
    rows = [setting_facts(each) for each in all_settings().values() if each.panel == panel]
    if not rows:
        return
    yield f"## {panel}\n"
    yield f"| {' | '.join(rows[0])} |"
    yield "|---" * len(rows[0]) + "|"
    for row in rows:
        cells = [f"`{row['setting']}`", *list(row.values())[1:]]
        yield f"| {' | '.join(cells)} |"
    yield ""


if __name__ == "__main__":
    print(settings_page(), end="")
