"""A real browser, a page opened in it, and a run's report as that page."""

from __future__ import annotations

import io
import shutil

import pytest

from focus_eval.bench.report.page.html import write_html

LONGEST_MILLISECONDS = 600_000  # ends what hangs; a slow machine is not wrong
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium():
    """A real Chromium, or the reason why there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS, timeout=LONGEST_MILLISECONDS)
        yield browser
        browser.close()


class Opened:
    """A page that remembers what it logged and asked for."""

    def __init__(self, chromium, path, **options):
        self.page = chromium.new_page(**options)
        self.page.set_default_timeout(LONGEST_MILLISECONDS)
        self.problems, self.requests, self.dialogs = [], [], []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("#detail h3", state="attached")

    def listed(self):
        return self.page.locator("#count").inner_text()

    def pick(self, **values):
        for name, value in values.items():
            self.page.select_option(f"#{name}", value)


@pytest.fixture
def opened(chromium):
    """A function that opens a page in Chromium; its pages are closed after the test."""
    pages = []

    def open_(path, **options):
        item = Opened(chromium, path, **options)
        pages.append(item)
        return item

    yield open_
    for page in pages:
        page.page.close()


@pytest.fixture(scope="session")
def page_file(by_length_run, tmp_path_factory):
    return write_html(by_length_run, tmp_path_factory.mktemp("page") / "report.html", thumbnails=pictures)


def pictures(video, frames):
    """Return a JPEG by frame, of a colour that depends on the frame's number."""
    from PIL import Image

    images = {}
    for frame in frames:
        buffer = io.BytesIO()
        Image.new("RGB", (64, 36), (frame % 256, 80, 120)).save(buffer, "JPEG")
        images[frame] = buffer.getvalue()
    return images
