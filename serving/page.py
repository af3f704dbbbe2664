"""The page of a server: a text in; its translation, the alternatives with their scores, and an attention map out."""

import os
import sys
import time
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

# By default, Gradio reports its use to its makers, and keeps a history of runs, which visitors may send to the hub.
os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
os.environ.setdefault("GRADIO_RUN_HISTORY", "False")

import gradio
from fastapi import FastAPI

from config import Config, TapisError
from decoding.attention import STYLE, tables
from decoding.search import Search
from serving.batches import Batches, QueueFullError
from serving.limits import ApiKeys, PageRequests
from serving.models import Answer, Kind, Models

MAX_CHARACTERS = 2000  # of a text
MAX_CONCURRENT = 40  # visitors whose texts are translated together; as many threads as Gradio has
N_ALTERNATIVES = 5
SEARCH = Search(beam=N_ALTERNATIVES, n_best=N_ALTERNATIVES)
TARGET_SEPARATOR = " → "  # between a run and a target language, in a choice
EXAMPLES = {  # by language
    "en": ["The cat is sitting on the mat.", "A man in jeans is playing with a red ball."],
    "fr": ["Le chat est assis sur le tapis.", "Un homme en jean joue avec un ballon rouge."],
    "de": ["Die Katze sitzt auf der Matte.", "Ein Mann in Jeans spielt mit einem roten Ball."],
}


class Page:
    """The actions of the page, which many visitors may call at the same time."""

    def __init__(self, models: Models, batches: Batches[Kind, Answer], max_seconds: float) -> None:
        self.models = models
        self.batches = batches
        self.max_seconds = max_seconds

    def translate(self, text: str, run: str) -> tuple[str, list[list[str]], str, str]:
        """Translate a text with a run. Raises gradio.Error, which the page shows, if that is not possible.

        run is a name, or a name and a target language (`choices_of`).

        Returns the translation; rows of score, alternative and its doubts; an attention map in HTML; and the speed with
        the lines to check. There are alternatives and a map only for a text of one sentence.
        """
        text = text.strip()
        if not text:
            raise error_of("There is nothing to translate: type a sentence.")
        if len(text) > MAX_CHARACTERS:
            raise error_of(f"This text has {len(text):,} characters; the page accepts {MAX_CHARACTERS:,} at most.")
        if run in self.models.configs:
            name, target = run, self.models.configs[run].target
        else:
            name, _, target = run.rpartition(TARGET_SEPARATOR)
        lines = text.splitlines()
        kind = Kind(name, "", target, SEARCH, with_details=True, with_attention=len(lines) == 1)
        start = time.perf_counter()
        answers = self.answers(kind, lines)
        return shown(answers, time.perf_counter() - start)

    def answers(self, kind: Kind, lines: list[str]) -> list[Answer]:
        """The answers to the lines of a text. Raises gradio.Error."""
        try:
            waiting = self.batches.submit(kind, lines)
        except QueueFullError:
            raise error_of("Too many texts wait to be translated: try again in a moment.") from None
        try:
            return waiting.result(self.max_seconds)
        except FutureTimeoutError:
            waiting.cancel()
            raise error_of(f"The translation took more than {self.max_seconds:g} s.") from None
        except TapisError as error:
            print(f"page: {error}", file=sys.stderr, flush=True)  # it may name files of this machine
            raise error_of("This model cannot be used; the server's log says why.") from None


def error_of(message: str) -> gradio.Error:
    """An error that the page shows, and that is not logged."""
    return gradio.Error(message, print_exception=False)


def shown(answers: list[Answer], seconds: float) -> tuple[str, list[list[str]], str, str]:
    """The result of `Page.translate` for the answers to the lines of a text."""
    best = "\n".join(answer.translations[0].text for answer in answers)

    # Of a single sentence, show the alternatives and the attention.
    sentences = [sentence for answer in answers for sentence in answer.sentences]
    alternatives: list[list[str]] = []
    attention_map = ""
    if len(sentences) == len(answers) == 1:
        alternatives = [[f"{one.score:.3f}", one.text, ", ".join(one.doubts)] for one in answers[0].translations]
        if attention := answers[0].attention:
            last_layer = len(attention.weights) - 1
            attention_map = tables(attention.maps(last_layer), attention.source, attention.target)

    noun = "sentence" if len(sentences) == 1 else "sentences"
    rate = len(sentences) / seconds
    speed = f"{len(sentences):,} {noun} in {seconds:.2f} s, {rate:.1f} sentences/s"
    doubts = [", ".join(answer.translations[0].doubts) for answer in answers]
    doubtful = [f"{i} ({marks})" for i, marks in enumerate(doubts, 1) if marks]
    if doubtful:
        speed += f"  \n**Check** line {'; '.join(doubtful)}"
    return best, alternatives, attention_map, speed


def build(page: Page) -> Any:
    """Build the page. Visitors choose among the runs and their target languages."""
    configs = page.models.configs
    choices = [choice for name, config in configs.items() for choice in choices_of(name, config)]
    languages = dict.fromkeys(source for config in configs.values() for source, _ in config.directions)
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

        # The button and the Enter key do the same; Gradio's API has one endpoint.
        fields: dict[str, Any] = {
            "inputs": [source, run],
            "outputs": [translation, alternatives, attention_map, speed],
        }
        button.click(page.translate, **fields, api_name="translate")
        source.submit(page.translate, **fields, api_visibility="private")
    return blocks.queue(max_size=page.batches.max_waiting, default_concurrency_limit=MAX_CONCURRENT)


def choices_of(name: str, config: Config) -> list[tuple[str, str]]:
    """What visitors choose a run by, one choice for each target language: a label, and the argument of `translate`."""
    choices = []
    for target in dict.fromkeys(target for _, target in config.directions):
        sources = ", ".join(source for source, other in config.directions if other == target)
        choice = f"{name}{TARGET_SEPARATOR}{target}" if config.pairs else name
        choices.append((f"{name} ({sources} → {target})", choice))
    return choices


def with_page(app: FastAPI, page: Page, keys: ApiKeys) -> FastAPI:
    """The application with the page at its root. If the server has keys, the page asks for one as its password."""
    app.add_middleware(PageRequests)
    theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["monospace"])
    auth = (lambda _, password: keys.allow(password)) if keys else None  # as a user name, anything will do
    message = "Any user name; the password is an API key of this server."
    return gradio.mount_gradio_app(
        app,
        build(page),
        "/",
        theme=theme,
        css=STYLE,
        footer_links=[],
        auth=auth,
        auth_message=message,
        show_error=False,  # of errors that are not gradio.Error
        ssr_mode=False,
    )
