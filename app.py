"""A page to translate in, for a browser: a text in, its translations with scores out, and what they attend to.

    python app.py [--run NAME]          and open the address that it prints

The page is made with Gradio, which is no part of a plain installation: `pip install -e ".[app]"`. It listens on this
machine only, unless --host says otherwise; there is no password.
"""

from functools import partial

from system.cli import AppOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, AppOptions))  # before torch and Gradio, which take seconds

import os
import sys
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from decoding.attention import STYLE, tables
from checkpoint import CheckpointError, RunFolder
from config import Config, DeviceName, TapisError, TranslatingPrecision
from decoding.search import Search
from text.sentences import has_letters
from decoding.translator import Translator

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # it reports to its makers otherwise

try:
    import gradio
except ImportError:
    raise SystemExit('app.py: Gradio is not installed; the page needs it: pip install -e ".[app]"') from None

LONGEST = 2000  # characters of a text
QUEUE = 100  # requests that may wait
ALTERNATIVES = 5
EXAMPLES = {
    "en": ["The cat is sitting on the mat.", "A man in jeans is playing with a red ball."],
    "fr": ["Le chat est assis sur le tapis.", "Un homme en jean joue avec un ballon rouge."],
    "de": ["Die Katze sitzt auf der Matte.", "Ein Mann in Jeans spielt mit einem roten Ball."],
}


class Page:
    """What the page does, for many visitors at once."""

    def __init__(self, device: DeviceName, precision: TranslatingPrecision) -> None:
        load = partial(Translator.load, device=device, precision=precision)
        self.load = lru_cache(maxsize=2)(load)  # models in memory
        self.lock = threading.Lock()  # one search at a time has all the threads of the CPU, or the GPU

    def translate(self, text: str, run: str) -> tuple[str, list[list[str]], str, str]:
        """A text → its translation, the alternatives with their scores, a map of the attention, and how fast it was."""
        text = text.strip()
        if not text:
            raise gradio.Error("There is nothing to translate: type a sentence.", print_exception=False)
        if len(text) > LONGEST:
            over = f"This text has {len(text):,} characters; the page takes {LONGEST:,} at most."
            raise gradio.Error(over, print_exception=False)
        try:
            with self.lock:
                return self.answer(text, self.load(run))
        except TapisError as error:
            raise gradio.Error(str(error), print_exception=False) from None

    def answer(self, text: str, translator: Translator) -> tuple[str, list[list[str]], str, str]:
        start = time.perf_counter()
        search = Search(beam=ALTERNATIVES, n_best=ALTERNATIVES)
        lines = text.splitlines()
        found = translator.text(lines, search)
        seconds = time.perf_counter() - start
        units = [unit for line in lines for unit in translator.taken_apart(line).units if has_letters(unit)]
        best = "\n".join(line[0].text for line in found)
        alternatives, shown = list[list[str]](), ""
        if len(units) == len(lines) == 1:
            alternatives = [[f"{score:.3f}", text] for text, score in found[0]]
            if translator.can_show_attention:
                _, attention = translator.attention(units[0], search)
                shown = tables(attention.maps(len(attention.weights) - 1), attention.source, attention.target)
        many = "sentence" if len(units) == 1 else "sentences"
        speed = f"{len(units):,} {many} in {seconds:.2f} s, {len(units) / seconds:.1f} sentences/s"
        return best, alternatives, shown, speed


def build(page: Page, runs: dict[str, Config]) -> Any:
    """The page, with a choice among these runs."""
    with gradio.Blocks(title="Tapis", analytics_enabled=False) as blocks:
        gradio.Markdown("# Tapis")
        with gradio.Row():
            with gradio.Column():
                choices = [(f"{name} ({config.source} → {config.target})", name) for name, config in runs.items()]
                run = gradio.Dropdown(choices, value=choices[0][1], label="Run")
                source = gradio.Textbox(label="Text", lines=4, max_lines=12, autofocus=True)
                button = gradio.Button("Translate", variant="primary")
                sources = dict.fromkeys(config.source for config in runs.values())
                gradio.Examples([text for language in sources for text in EXAMPLES.get(language, [])] or [""], source)
            with gradio.Column():
                translation = gradio.Textbox(label="Translation", lines=4, max_lines=12, interactive=False)
                speed = gradio.Markdown()
                others = gradio.Dataframe(
                    headers=["score", "translation"], label="Alternatives, from beam search", interactive=False
                )
        gradio.Markdown("What each token of the translation (rows) attends to in the last layer; hover for the weights")
        shown = gradio.HTML()
        what: dict[str, Any] = {"inputs": [source, run], "outputs": [translation, others, shown, speed]}
        button.click(page.translate, **what, api_name="translate")
        source.submit(page.translate, **what, api_visibility="private")
    return blocks.queue(max_size=QUEUE, default_concurrency_limit=4)


def listed() -> dict[str, Config]:
    """The runs to choose among; standard error names one that is damaged."""
    found = {}
    for folder in RunFolder.trained():
        try:
            found[folder.path.name] = folder.load_config()
        except CheckpointError as error:
            print(f"left out: {error}", file=sys.stderr)
    return found


def main(args: Sequence[str]) -> None:
    options = parse(AppOptions, args)
    page = Page(options.device, options.precision)
    found = listed()
    first = options.run or next(iter(found), "")
    config = page.load(first).config  # or the error that there is none
    theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["monospace"])
    blocks = build(page, {first: config} if options.run else found)
    try:
        blocks.launch(server_name=options.host, server_port=options.port, theme=theme, css=STYLE, footer_links=[])
    except OSError:
        where = f"port {options.port} at {options.host}"
        raise TapisError(f"{where} is taken, or not this machine's: choose another --port, or --host") from None


if __name__ == "__main__":
    run_command(main)
