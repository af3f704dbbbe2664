"""A web page that translates: a text in; its translation, alternatives with scores, and an attention map out.

    python app.py [--run NAME]          then open the address that it prints

The page needs Gradio, an optional dependency: `pip install -e ".[app]"`. It listens on this machine only, unless --host
says otherwise. There is no password.
"""

from functools import partial

from system.cli import AppOptions, answer_early, parse, run_command

answer_early(__name__, partial(parse, AppOptions))  # before torch and Gradio, which take seconds to import

import os
import sys
import threading
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from checkpoint import CheckpointError, RunFolder
from config import Config, TapisError
from decoding.attention import STYLE, tables
from decoding.search import Search
from decoding.translator import Translator
from text.sentences import has_letters

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")  # by default, Gradio reports its use to its makers

try:
    import gradio
except ImportError:
    raise SystemExit('app.py: the page needs Gradio, which is not installed: pip install -e ".[app]"') from None

MAX_CHARACTERS = 2000  # of a text
MAX_WAITING = 100  # requests in the queue
MAX_MODELS = 2  # in memory
N_ALTERNATIVES = 5
TOWARDS = " → "  # between a run and a target language, in a choice
EXAMPLES = {  # by language
    "en": ["The cat is sitting on the mat.", "A man in jeans is playing with a red ball."],
    "fr": ["Le chat est assis sur le tapis.", "Un homme en jean joue avec un ballon rouge."],
    "de": ["Die Katze sitzt auf der Matte.", "Ein Mann in Jeans spielt mit einem roten Ball."],
}


class Page:
    """The actions of the page, which many visitors may call at the same time."""

    def __init__(self, options: AppOptions) -> None:
        load = partial(Translator.load, device=options.device, precision=options.precision, plain=options.plain)
        self.load = lru_cache(maxsize=MAX_MODELS)(load)
        self.lock = threading.Lock()  # one search at a time uses all CPU threads, or the GPU

    def translate(self, text: str, run: str) -> tuple[str, list[list[str]], str, str]:
        """Translate a text with a run. Raises gradio.Error, which the page shows, if that is not possible.

        run is a name, or a name and a target language (`choices_of`).

        Returns the translation; rows of score, alternative and its doubts; an attention map in HTML; and the speed with
        the lines to check. There are alternatives and a map only for a text of one sentence.
        """
        text = text.strip()
        if not text:
            raise gradio.Error("There is nothing to translate: type a sentence.", print_exception=False)
        if len(text) > MAX_CHARACTERS:
            message = f"This text has {len(text):,} characters; the page accepts {MAX_CHARACTERS:,} at most."
            raise gradio.Error(message, print_exception=False)
        try:
            with self.lock:
                name, _, target = run.partition(TOWARDS)
                return self.answer(text, self.load(name).towards(target))
        except TapisError as error:
            raise gradio.Error(str(error), print_exception=False) from None

    def answer(self, text: str, translator: Translator) -> tuple[str, list[list[str]], str, str]:
        """The result of `translate`, for a valid text and a loaded model."""
        # Translate line by line, with the time that it takes.
        lines = text.splitlines()
        search = Search(beam=N_ALTERNATIVES, n_best=N_ALTERNATIVES)
        start = time.perf_counter()
        translations = translator.text(lines, search, with_doubts=True)  # of each line, best first
        seconds = time.perf_counter() - start
        best = "\n".join(line[0].text for line in translations)

        # Of a single sentence, show the alternatives and the attention.
        sentences = [unit for line in lines for unit in translator.split_line(line).units if has_letters(unit)]
        alternatives: list[list[str]] = []
        attention_map = ""
        if len(sentences) == len(lines) == 1:
            alternatives = [[f"{one.score:.3f}", one.text, ", ".join(one.doubts)] for one in translations[0]]
            if translator.can_show_attention:
                _, attention = translator.attention(sentences[0], search)
                last_layer = len(attention.weights) - 1
                attention_map = tables(attention.maps(last_layer), attention.source, attention.target)

        noun = "sentence" if len(sentences) == 1 else "sentences"
        rate = len(sentences) / seconds
        speed = f"{len(sentences):,} {noun} in {seconds:.2f} s, {rate:.1f} sentences/s"
        doubtful = [f"{i} ({', '.join(line[0].doubts)})" for i, line in enumerate(translations, 1) if line[0].doubts]
        if doubtful:
            speed += f"  \n**Check** line {'; '.join(doubtful)}"
        return best, alternatives, attention_map, speed


def build(page: Page, runs: dict[str, Config]) -> Any:
    """Build the page. Visitors choose among the runs, whose names are the keys."""
    choices = [choice for name, config in runs.items() for choice in choices_of(name, config)]
    languages = dict.fromkeys(source for config in runs.values() for source, _ in config.directions)
    examples = [text for language in languages for text in EXAMPLES.get(language, [])] or [""]

    with gradio.Blocks(title="Tapis", analytics_enabled=False) as blocks:
        gradio.Markdown("# Tapis")
        with gradio.Row():
            with gradio.Column():
                run = gradio.Dropdown(choices, value=choices[0][1], label="Run")
                source = gradio.Textbox(label="Text", lines=4, max_lines=12, autofocus=True)
                button = gradio.Button("Translate", variant="primary")
                gradio.Examples(examples, source)
            with gradio.Column():
                translation = gradio.Textbox(label="Translation", lines=4, max_lines=12, interactive=False)
                speed = gradio.Markdown()
                alternatives = gradio.Dataframe(
                    headers=["score", "translation", "doubts"],
                    label="Alternatives, from beam search",
                    interactive=False,
                )
        gradio.Markdown(
            "Attention in the last layer, from each token of the translation (rows) to the source. "
            "Hover over a cell for its weight."
        )
        attention_map = gradio.HTML()

        # The button and the Enter key do the same; the API has one endpoint.
        fields: dict[str, Any] = {
            "inputs": [source, run],
            "outputs": [translation, alternatives, attention_map, speed],
        }
        button.click(page.translate, **fields, api_name="translate")
        source.submit(page.translate, **fields, api_visibility="private")
    return blocks.queue(max_size=MAX_WAITING, default_concurrency_limit=4)


def choices_of(name: str, config: Config) -> list[tuple[str, str]]:
    """What visitors choose a run by, one choice for each target language: a label, and the argument of `translate`."""
    choices = []
    for target in dict.fromkeys(target for _, target in config.directions):
        sources = ", ".join(source for source, other in config.directions if other == target)
        choices.append((f"{name} ({sources} → {target})", f"{name}{TOWARDS}{target}" if config.pairs else name))
    return choices


def available_runs() -> dict[str, Config]:
    """The trained runs with a readable config, by name. Prints an error for each of the others."""
    configs = {}
    for folder in RunFolder.trained():
        try:
            configs[folder.path.name] = folder.load_config()
        except CheckpointError as error:
            print(f"left out: {error}", file=sys.stderr)
    return configs


def main(args: Sequence[str]) -> None:
    """Runs the command: serves the page until it is stopped."""
    # Load the model that the page starts with: that of --run, or the most recent one. Fails if there is none.
    options = parse(AppOptions, args)
    page = Page(options)
    runs = available_runs()
    first = options.run or next(iter(runs), "")
    config = page.load(first).config

    # Serve the page, with the run of --run alone, or with a choice among all.
    theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["monospace"])
    blocks = build(page, {first: config} if options.run else runs)
    try:
        blocks.launch(server_name=options.host, server_port=options.port, theme=theme, css=STYLE, footer_links=[])
    except OSError:
        address = f"port {options.port} at {options.host}"
        raise TapisError(f"{address} is taken, or not this machine's: choose another --port or --host") from None


if __name__ == "__main__":
    run_command(main)
