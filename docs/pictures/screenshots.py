"""Take pictures of the demo's run in a browser.

    page.png           the page of serve.py
    tensorboard.png    TensorBoard
    documents.png      the report of a translated page
    terms.png          the page of serve.py with a glossary

From the project's root, after `make demo` and with the development dependencies, `chromium` and `chromedriver`:

    python docs/pictures/screenshots.py [page] [tensorboard] [documents] [terms]

Without a name, it takes all of them.
"""

import base64
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from selenium import webdriver

PICTURES = Path("docs/pictures")
RUN = Path("runs/demo")
SENTENCE = "The cat is sitting on the mat."
TAGS = ("train/loss", "valid/loss", "valid/bleu")
NAMES = ("page", "tensorboard", "documents", "terms")
WINDOW = (1300, 800)  # pixels
PAGE_WIDTH = 1000  # of all but tensorboard.png, in pixels of the page
PIXELS = 2  # of a picture for each pixel of the page, for screens of high resolution
DOCUMENT = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>The garden</title></head><body>
<h1>The garden</h1>
<p>The black cat is sleeping in the <b>garden</b>. She sees the <a href="house.html">red house</a>.</p>
<ul><li>The old dog does not eat.</li><li>The girl is singing in the big house.</li><li>The quokka sleeps.</li></ul>
</body></html>
"""
GLOSSARY = "mat\tpaillasson\ndog\ttoutou\n"
SECONDS = 120.0  # to wait for anything: serve.py first imports torch, and loads the model


def main() -> None:
    folder = RUN if "tensorboard" in (sys.argv[1:] or NAMES) else Path("weights/demo")
    if not folder.is_dir():
        sys.exit(f"screenshots.py: {folder} not found; run `make demo` first, and start this script from the root")
    names = sys.argv[1:] or NAMES
    if not set(names) <= set(NAMES):
        sys.exit(f"screenshots.py: expected names of {', '.join(NAMES)}")

    with chromium() as browser:
        if "page" in names:
            server = [sys.executable, "serve.py", "--run", "demo"]
            with served(server) as address:
                photograph_page(browser, address, PICTURES / "page.png")

        if "tensorboard" in names:
            tensorboard = [sys.executable, "-m", "tensorboard.main", "--logdir", str(RUN.parent), "--host", "127.0.0.1"]
            with served(tensorboard) as address:
                photograph_tensorboard(browser, address, PICTURES / "tensorboard.png")

        if "documents" in names:
            photograph_report(browser, PICTURES / "documents.png")

        if "terms" in names:
            photograph_terms(browser, PICTURES / "terms.png")


def photograph_page(browser: Any, address: str, file: Path) -> None:
    """Save the whole page after it has translated the sentence, with the attention unfolded."""
    with page_of_width(browser, PAGE_WIDTH, address):
        attention = translated(browser, SENTENCE)
        attention.find_element("css selector", "summary").click()
        attention.find_element("css selector", "td")
        file.write_bytes(whole_page(browser))


def photograph_terms(browser: Any, file: Path) -> None:
    """Save the page of a server with a glossary, after a sentence with its terms."""
    with tempfile.TemporaryDirectory() as folder:
        glossary = Path(folder) / "terms.en-fr.tsv"
        glossary.write_text(GLOSSARY, encoding="utf-8")
        server = [sys.executable, "serve.py", "--run", "demo", "--glossary", str(glossary)]
        with served(server) as address, page_of_width(browser, PAGE_WIDTH, address):
            translated(browser, "The dog is sitting on the mat.")
            file.write_bytes(whole_page(browser))


def photograph_report(browser: Any, file: Path) -> None:
    """Save the report of a small page that was translated."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "garden.html").write_text(DOCUMENT, encoding="utf-8")
        flags = ["--run", str(Path("weights/demo").resolve()), "--beam", "5", "--report", "report.html"]
        files = ["--input", "garden.html", "--output", "garden.fr.html"]
        command = [sys.executable, str(Path("translate.py").resolve()), *flags, *files]
        subprocess.run(command, check=True, cwd=folder)
        with page_of_width(browser, PAGE_WIDTH, (Path(folder) / "report.html").as_uri(), height=1):
            file.write_bytes(whole_page(browser))


@contextmanager
def page_of_width(browser: Any, width: int, address: str, height: int = 600) -> Iterator[None]:
    """Open a page at a width, in light colours and at a high resolution, until the end of the block."""
    size = {"width": width, "height": height, "deviceScaleFactor": PIXELS, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
    light = [{"name": "prefers-color-scheme", "value": "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": light})
    browser.get(address)
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def translated(browser: Any, sentence: str) -> Any:
    """Type a sentence into the page, and return the element of its attention once it is there."""
    browser.find_element("id", "text").send_keys(sentence)
    attention = browser.find_element("id", "attention")
    wait_until(attention.is_displayed, "the attention")
    browser.execute_script("document.activeElement.blur()")  # so that no outline and no cursor is in the picture
    return attention


def photograph_tensorboard(browser: Any, address: str, file: Path) -> None:
    """Save the SCALARS tab, filtered to the curves of loss and BLEU, without smoothing."""

    # A tab that opens before the run is read stays empty for half a minute.
    def is_run_read() -> bool:
        with urllib.request.urlopen(f"{address}/data/plugin/scalars/tags", timeout=10) as answer:
            return set(TAGS) <= set(json.load(answer).get(RUN.name, ()))

    wait_until(is_run_read, f"{', '.join(TAGS)} of run {RUN.name}")
    only_tags = quote(f"^({'|'.join(TAGS)})$", safe="")
    browser.get(f"{address}/#scalars&tagFilter={only_tags}&_smoothingWeight=0")

    # Charts are elements within shadow roots, which CSS selectors do not enter.
    script = """
        const within = root => [...root.querySelectorAll('*')].flatMap(
            element => [element, ...(element.shadowRoot ? within(element.shadowRoot) : [])]);
        const charts = within(document).filter(element => element.localName === 'vz-line-chart2');
        return [charts.filter(chart => chart.hasAttribute('data-loaded-once')).length,
                charts.filter(chart => chart.hasAttribute('data-loading')).length]"""

    def are_charts_loaded() -> bool:
        loaded, loading = browser.execute_script(script)
        return bool(loaded >= len(TAGS) and not loading)

    wait_until(are_charts_loaded, "TensorBoard's charts")
    time.sleep(1)  # loaded charts are drawn in the frames that follow
    browser.save_screenshot(str(file))


def whole_page(browser: Any) -> bytes:
    """Return a PNG of the page from top to bottom, also of what is outside the window."""
    area = {**browser.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"], "scale": 1}
    options = {"format": "png", "captureBeyondViewport": True, "clip": area}
    return base64.b64decode(browser.execute_cdp_cmd("Page.captureScreenshot", options)["data"])


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a Chromium without a window, driven by selenium, and quit it at the end."""
    binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not (binary and driver):
        sys.exit("screenshots.py: chromium and chromedriver are needed (Debian: chromium and chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    size = "{},{}".format(*WINDOW)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--window-size={size}"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.implicitly_wait(20)  # seconds, for an element that is looked for
    try:
        yield browser
    finally:
        browser.quit()


@contextmanager
def served(command: list[str]) -> Iterator[str]:
    """Start a server on a free port of this machine, yield its address once it answers, and always stop it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([*command, "--port", str(port)], stdout=subprocess.DEVNULL)

    def answers() -> bool:
        if server.poll() is not None:
            sys.exit(f"screenshots.py: {' '.join(command)} ended with exit status {server.returncode}")
        try:
            with urllib.request.urlopen(address, timeout=10):
                return True
        except OSError:
            return False

    try:
        wait_until(answers, address)
        yield address
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def wait_until(is_done: Callable[[], Any], what: str) -> None:
    """Return once is_done() is true; exit with a message after SECONDS."""
    deadline = time.monotonic() + SECONDS
    while not is_done():
        if time.monotonic() > deadline:
            sys.exit(f"screenshots.py: waited {SECONDS:.0f} s for {what}")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
