"""The HTML file of `export.py --to web` in headless Chromium: same translations, speed, and time until it is ready.

    python benchmarks/web_page.py RUN SOURCE [REFERENCE] [--beam]

SOURCE and REFERENCE are files of one sentence a line. A worker with the code of the file translates the sentences one
by one, as its page does. They are compared with those of `Translator` in int8. Times are those of the search, and of
all that the page does with a sentence: doubts, too. Needs chromium and chromedriver.
"""

import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated, Any

import tyro

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from selenium import webdriver  # noqa: E402

from checkpoint import RunFolder  # noqa: E402
from decoding.translator import Translator  # noqa: E402
from exporting.web import to_web  # noqa: E402
from tapis.scoring import score  # noqa: E402
from tapis.search import Search  # noqa: E402
from tapis.text.lines import lines  # noqa: E402

BEAM = 5
WORDS = 12  # of the sentences that are timed apart
AT_ONCE = 200  # sentences in a call, which may take two minutes

# Translates sentences in a worker that has the engine: of each the text, the milliseconds of its search, and those of
# all that the page does with it. Warm, as the page after its start.
TRANSLATE = """
const [engine, parts, sentences, target, beam, done] = arguments;
const work = ({ data: [[module, description, ...weights], sentences, target, beam] }) => {
  const translator = new Translator(JSON.parse(description), bytesOf(module));
  for (const part of weights) translator.engine.takeWeights(bytesOf(part));
  const timed = (work) => {
    const start = performance.now();
    const found = work();
    return [found, performance.now() - start];
  };
  for (let i = 0; i < 20; i++) translator.nBest("A, b.", target, { beam });
  postMessage(sentences.map((sentence) => {
    const [[{ text }], ofSearch] = timed(() => translator.nBest(sentence, target, { beam }));
    const [, ofAll] = timed(() => translator.translateUnit(sentence, target, { beam }));
    return [text, ofSearch, ofAll];
  }));
};
const worker = new Worker(URL.createObjectURL(new Blob([`${engine}\\nonmessage = ${work};`])));
worker.onmessage = ({ data }) => {
  worker.terminate();
  done(data);
};
worker.onerror = (event) => done(event.message);
worker.postMessage([parts, sentences, target, beam]);
"""


@dataclass(frozen=True)
class Options:
    """Measure the HTML file of a run."""

    run: Annotated[str, tyro.conf.Positional]
    """The run"""
    source: Annotated[Path, tyro.conf.Positional]
    """Sentences to translate"""
    reference: Annotated[Path | None, tyro.conf.Positional] = None
    """Their translations, for BLEU"""
    beam: tyro.conf.FlagCreatePairsOff[bool] = False
    """Translate with a beam of 5, too"""
    target: str = ""
    """Language to translate into, if the run has several"""


def chromium() -> Any:
    """Return a Chromium without a window."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    browser.set_script_timeout(115)  # the client waits for 120 seconds
    return browser


def seconds_until_ready(browser: Any, file: Path) -> float:
    """Open the file until its page can translate, which has then chosen a language."""
    start = time.perf_counter()
    browser.get(file.as_uri())
    while not browser.execute_script("return target.value"):
        assert time.perf_counter() - start < 60, browser.find_element("id", "status").text
        time.sleep(0.01)
    return time.perf_counter() - start


def percentiles(milliseconds: list[float]) -> str:
    """Return the median and the 95th percentile."""
    if len(milliseconds) < 2:
        return "too few sentences"
    return f"median {median(milliseconds):.1f} ms, 95th percentile {quantiles(milliseconds, n=20)[-1]:.1f} ms"


def main() -> None:
    options = tyro.cli(Options)
    translator = Translator.load(options.run, "cpu", "int8").towards(options.target)
    sentences = list(lines(options.source))
    references = list(lines(options.reference)) if options.reference else None

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        to_web(RunFolder.find(options.run), file, "unknown")
        page = file.read_text(encoding="utf-8")
        parts = dict(re.findall(r'<script type="text/plain" id="([\w-]+)"[^>]*>(.*?)</script>', page, re.DOTALL))
        of_model = [
            text for name, text in parts.items() if name not in ("engine", "worker")
        ]  # in the order of the file
        browser = chromium()
        try:
            ready = [seconds_until_ready(browser, file) for _ in range(5)]
            print(f"{file.stat().st_size / 1e6:.1f} MB, ready in {median(ready):.2f} s (median of 5)", flush=True)
            for beam in (1, BEAM) if options.beam else (1,):
                results: list[tuple[str, float, float]] = []
                for start in range(0, len(sentences), AT_ONCE):
                    chunk = sentences[start : start + AT_ONCE]
                    arguments = (parts["engine"], of_model, chunk, translator.target, beam)
                    answer = browser.execute_async_script(TRANSLATE, *arguments)
                    assert isinstance(answer, list), answer
                    results += answer
                expected = translator(sentences, Search(beam=beam))
                report(beam, sentences, results, expected, references, translator.target)
        finally:
            browser.quit()


def report(
    beam: int,
    sentences: list[str],
    results: list[tuple[str, float, float]],
    expected: list[str],
    references: list[str] | None,
    target: str,
) -> None:
    """Print the comparison of the page's translations with those of `Translator`."""
    texts, of_search, of_all = map(list, zip(*results, strict=True))
    n_same = sum(a == b for a, b in zip(texts, expected, strict=True))
    print(f"beam {beam}: {n_same} of {len(texts)} the same as in int8 ({n_same / len(texts):.1%})")
    if references:
        bleu_page, bleu_int8 = (score(one, references, target).bleu for one in (texts, expected))
        print(f"  BLEU {bleu_page:.2f}, of int8 {bleu_int8:.2f}")
    for name, times in (("search", of_search), ("all", of_all)):
        of_12_words = [t for t, sentence in zip(times, sentences, strict=True) if len(sentence.split()) == WORDS]
        print(f"  {name}: {len(times)} sentences: {percentiles(times)}")
        print(f"  {name}: {len(of_12_words)} of {WORDS} words: {percentiles(of_12_words)}", flush=True)


if __name__ == "__main__":
    main()
