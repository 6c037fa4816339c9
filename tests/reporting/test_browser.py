"""The HTML report in headless Chromium, at three widths, light and dark (``make test-browser``)."""

import json
import shutil
from pathlib import Path

import pytest
from support.records import MANIFEST, write_folder, write_profile, write_run

from ncfbench.reporting.render.html import page
from ncfbench.reporting.results import FILE, collect

pytestmark = pytest.mark.browser
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Chromium asks for updates and the like by itself, which is no request of the page.
FLAGS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    with playwright.sync_playwright() as started:
        if found is None and not Path(started.chromium.executable_path).exists():
            pytest.fail(
                "There is no Chromium here. Install the package chromium, or run: playwright"
                " install chromium"
            )
        opened = started.chromium.launch(executable_path=found, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A page of runs with several s and k, a profile, and the data."""
    folder = write_folder(tmp_path_factory.mktemp("runs"))
    for seed in range(3):
        for k, loss in ((2, 3.4), (5, 3.1), (10, 2.9), (20, 2.8)):
            recalls = [0, 0.3, 0.4 + k / 500]
            write_run(folder, "neg", [9, 5, loss], 15 * k, recalls, negatives=k, seed=seed)
        for s, loss in ((1, 2.8), (2, 2.85), (8, 3.1), (16, 3.6)):
            recalls = [0, 0.3, 0.46 - s / 200]
            write_run(folder, "strat-ns", [9, 6, loss], 20, recalls, stratum_size=s, seed=seed)
    write_profile(folder)
    (folder / FILE).write_text(json.dumps({"f" * 64: MANIFEST}))
    results = collect(folder, folder / "no-data")
    path = folder / "report.html"
    path.write_text(page(results, results.tables), encoding="utf-8")
    return path


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 820, 1400])
def test_the_page_fits_and_asks_for_nothing(browser, report, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        shown = context.new_page()
        errors: list[str] = []
        requests: list[str] = []
        shown.on(
            "console",
            lambda message: (
                errors.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        shown.on("pageerror", lambda error: errors.append(str(error)))
        shown.on("request", lambda request: requests.append(request.url))
        shown.goto(report.as_uri())
        shown.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert errors == []
        assert [url for url in requests if not url.startswith("data:")] == [report.as_uri()]
        # Tables may scroll in their own boxes; the page may not.
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        wide = """[...document.querySelectorAll('body *')]
            .filter(e => !e.closest('.scroll, pre, .drawing')
                && e.getBoundingClientRect().right > innerWidth + 1)
            .map(e => e.outerHTML.slice(0, 80))"""
        assert shown.evaluate(wide) == []
        drawn = shown.evaluate("""[...document.querySelectorAll('.drawing img')].map(img => {
                const box = img.getBoundingClientRect();
                return [box.width, box.height, img.naturalWidth];
            })""")
        captions = shown.locator("figcaption").all_inner_texts()
        kinds = ("answer", "targets")
        for kind in kinds:
            assert any(f"({kind}-" in caption for caption in captions)
        assert len(drawn) == shown.locator(".drawing").count() >= len(kinds)
        assert all(w > 0.8 * min(width, 1100) - 60 and h > 100 for w, h, _ in drawn)
        # Letters of 10 points stay readable on a phone: the drawing scrolls in its own box.
        assert all(natural > 0 and w >= 540 for w, _, natural in drawn)
        assert (
            shown.evaluate(
                "(ids => ids.length - new"
                " Set(ids).size)([...document.querySelectorAll('[id]')].map(e => e.id))"
            )
            == 0
        )
        ink, paper = shown.evaluate(
            "[getComputedStyle(document.body).color,"
            " getComputedStyle(document.body).backgroundColor]"
        )
        assert _contrast(ink, paper) > 7
        assert (_luminance(paper) > 0.5) == (scheme == "light")
        assert shown.locator("main section").first.locator("h2").inner_text() == "Answer"
    finally:
        context.close()


def _luminance(color):
    """Relative luminance of an ``rgb(...)`` colour (WCAG 2)."""
    channels = [float(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one, other):
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)
