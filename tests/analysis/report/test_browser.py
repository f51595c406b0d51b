"""The HTML report in a real browser: what is seen, what is loaded, on a phone, by keyboard, in the dark, and printed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.report.write import write_report
from scenarios.runs.reading import read
from scenarios.sweeps.options import Machines
from scenarios.sweeps.sweep import plan, sweep

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.draws,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the PATH to open the report with"),
]
pytest.importorskip("playwright", reason="Playwright is not installed: pip install -e .[test]")

STUDIES = {
    "quickstart": ["time_limit_s=20", "sweep.seeds=[1,2]"],
    "unreliable": ["rounds=60", "sweep.seeds=[1,2]"],
    "jammed": ["rounds=200", "sweep.seeds=[1,2]"],
    "bp_ucb_timing_loss": ["rounds=5", "sweep.seeds=[1,2]"],
}
"""One of each sort: with a learner, latency alone, sub-channels, decentralised."""


@pytest.fixture(scope="module", params=list(STUDIES))
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    sweep(plan(read(request.param, STUDIES[request.param]), request.param), folder / "sweep", machines=Machines(jobs=1))
    return write_report(folder / "sweep", folder / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        launched = play.chromium.launch(executable_path=CHROMIUM)
        yield launched
        launched.close()


class Opened:
    """A page with everything that it complained of and asked for."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.told: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.told.append(message.text))
        self.page.on("pageerror", lambda error: self.told.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())


def test_figures_are_seen_and_nothing_is_loaded_or_complained_of(browser: Any, report: Path) -> None:
    opened = Opened(browser, report, viewport={"width": 1280, "height": 900})
    pictures = opened.page.locator("figure svg[role=img]")
    assert pictures.count() >= 2
    for index in range(pictures.count()):
        box = pictures.nth(index).bounding_box()
        assert box["width"] > 500
        assert box["height"] > 60
    opened.page.locator("details:has(code) > summary").first.click()
    assert opened.page.locator("details code").first.is_visible()
    for folded in opened.page.locator(".long").all():
        assert not folded.locator("table").is_visible()
        folded.locator("summary").click()
        assert folded.locator("table").is_visible()
    assert opened.told == []
    assert opened.requests == [report.as_uri()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_need_not_scroll_sideways(browser: Any, report: Path, scheme: str) -> None:
    opened = Opened(browser, report, viewport={"width": 360, "height": 740}, color_scheme=scheme, device_scale_factor=2)
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 360
    # What is wider scrolls within itself, and a keyboard can get there.
    wide = "[...document.querySelectorAll('main *')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)"
    scrollers = f"{wide}.filter(e => getComputedStyle(e).overflowX === 'auto')"
    assert opened.page.evaluate(f"{scrollers}.length") > 0
    assert opened.page.evaluate(f"{scrollers}.every(e => e.tabIndex === 0)")
    # Letters of a figure are at least 9 pixels high.
    drawn = opened.page.locator("figure svg").first.bounding_box()["width"]
    assert 10.5 * 4 / 3 * drawn / (7.2 * 96) >= 9.0


def test_the_keyboard_goes_through_the_page_in_its_order(browser: Any, report: Path) -> None:
    opened = Opened(browser, report, viewport={"width": 1280, "height": 900})
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.className") == "skip"
    assert opened.page.locator(".skip").bounding_box()["y"] >= 0.0
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "content"
    opened = Opened(browser, report, viewport={"width": 1280, "height": 900})
    where = "e => [e.tagName, e.getBoundingClientRect().top + scrollY, getComputedStyle(e).outlineStyle]"
    tops: list[float] = []
    focused: list[str] = []
    for _ in range(400):
        opened.page.keyboard.press("Tab")
        place = opened.page.evaluate(f"({where})(document.activeElement)")
        if place[0] == "BODY":
            break
        focused.append(place[0])
        assert place[2] != "none"
        tops.append(place[1])
    expected = opened.page.evaluate("document.querySelectorAll('a, summary, [tabindex=\"0\"]').length")
    # The scenario within its closed summary is not there to be focused.
    assert len(focused) == expected - opened.page.locator("details [tabindex='0']").count()
    assert tops[1:] == sorted(tops[1:])


def _luminance(colour: str) -> float:
    channels = [float(value) / 255 for value in re.findall(r"[\d.]+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_figures_stand_out_in_light_and_dark(browser: Any, report: Path, scheme: str) -> None:
    opened = Opened(browser, report, color_scheme=scheme)
    paper = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (_luminance(paper) > 0.5) == (scheme == "light")
    texts = opened.page.evaluate(
        "[...document.querySelectorAll('p:not(.warning), td, th, h2, a, dt, figcaption')].map(e => getComputedStyle(e).color)"
    )
    assert min(_contrast(colour, paper) for colour in set(texts)) >= 4.5
    # Letters of figures, which Matplotlib draws as outlines: all of the colour of the text, or of notes.
    letters = opened.page.evaluate(
        "[...document.querySelectorAll('figure svg g[id*=text_] use')].map(e => getComputedStyle(e).fill)"
    )
    assert len(letters) > 100
    assert min(_contrast(colour, paper) for colour in set(letters)) >= 3.0
    lines = opened.page.evaluate(
        "[...document.querySelectorAll('figure svg g[id*=line2d_] > path')].map(e => getComputedStyle(e).stroke)"
    )
    drawn = {colour for colour in lines if colour.startswith("rgb(")}
    # The palette's lightest colours have no more on white: line styles tell them apart, too. Grids are faint on purpose.
    grid = opened.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--grid')").strip().lstrip("#")
    faint = f"rgb({', '.join(str(int(grid[i : i + 2], 16)) for i in (0, 2, 4))})"
    # Lines of the very colour of the paper part the cells of a map from one another.
    assert min(_contrast(colour, paper) for colour in drawn - {faint, paper}) >= 2.0


def test_print_shows_everything_on_white(browser: Any, report: Path) -> None:
    opened = Opened(browser, report, viewport={"width": 720, "height": 900}, color_scheme="dark")
    opened.page.emulate_media(media="print")
    ink = opened.page.evaluate("getComputedStyle(document.querySelector('p')).color")
    assert _contrast(ink, "rgb(255, 255, 255)") >= 4.5
    assert not opened.page.locator("nav").is_visible()
    assert opened.page.locator("details code").first.is_visible()
    for folded in opened.page.locator(".long").all():
        assert folded.locator("table").is_visible()
        assert not folded.locator("summary").is_visible()
    pdf = opened.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3
