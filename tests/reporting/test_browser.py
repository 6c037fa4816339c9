"""The HTML report in headless Chromium, at three widths, light and dark (``make test-browser``)."""

import re
import shutil
from pathlib import Path

import pytest

from ncfbench.reporting.render.html import page
from ncfbench.reporting.results import collect

pytestmark = pytest.mark.browser
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Chromium asks for updates and the like by itself, which is no request of the page.
FLAGS = ["background-networking", "component-update", "sync"]
# Tables may scroll in their own boxes; the page may not.
WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, .drawing')
    && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
DRAWN = """[...document.querySelectorAll('.drawing img')].map(img => {
    const box = img.getBoundingClientRect(); return [box.width, box.height, img.naturalWidth]; })"""
COLOURS = """(style => [style.color, style.backgroundColor])(getComputedStyle(document.body))"""


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")
    known = next((path for name in NAMES if (path := shutil.which(name))), None)
    with playwright.sync_playwright() as started:
        if known is None and not Path(started.chromium.executable_path).exists():
            pytest.fail("There is no Chromium here. Run: playwright install chromium")
        flags = ["--no-sandbox", *(f"--disable-{name}" for name in FLAGS)]
        opened = started.chromium.launch(executable_path=known, args=flags)
        yield opened
        opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 820, 1400])
def test_the_page_fits_and_asks_for_nothing(browser, rich, tmp_path, width, scheme):
    results, path = collect(rich, rich), tmp_path / "report.html"
    path.write_text(page(results, results.tables), encoding="utf-8")
    shown = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    events, requests = [], []
    shown.on("console", lambda message: events.append((message.type, message.text)))
    shown.on("pageerror", lambda error: events.append(("error", str(error))))
    shown.on("request", lambda request: requests.append(request.url))
    shown.goto(path.as_uri())
    shown.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert [text for kind, text in events if kind in ("error", "warning")] == []
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.evaluate(WIDE) == []
    drawn = shown.evaluate(DRAWN)
    assert len(drawn) == shown.locator(".drawing").count() == 4
    # Letters of 10 points stay readable on a phone: the drawing scrolls in its own box.
    assert all(
        natural > 0 and across >= max(540, 0.8 * min(width, 1100) - 60) and high > 100
        for across, high, natural in drawn
    )
    ink, paper = map(luminance, shown.evaluate(COLOURS))
    assert (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05) > 7
    assert (paper > 0.5) == (scheme == "light")
    assert shown.locator("main section").first.locator("h2").inner_text() == "Answer"
    shown.close()


def luminance(color):
    """Relative luminance of an ``rgb(...)`` colour (WCAG 2)."""
    channels = [float(part) / 255 for part in re.findall(r"[\d.]+", color)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
