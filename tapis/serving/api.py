"""The HTTP API that clients of LibreTranslate speak (https://docs.libretranslate.com), over the models of a server.

    POST /translate          q, source, target, format, alternatives, api_key: a text or a list of them
    POST /detect             q, api_key: the languages that a text may be in
    POST /translate_file     file, source, target, api_key: a file of text, HTML, Markdown, subtitles, PO or JSON
    GET  /download_file/NAME its translation
    GET  /languages          the language pairs
    GET  /frontend/settings  limits and formats
    GET  /health             whether the server runs
    GET  /metrics            counters and times, for Prometheus
    GET  /docs, /spec        this API, to read and to try; its description

Requests are JSON, an HTML form, or parameters of the URL; answers are JSON. An error has a status and {"error": what is
wrong}. Nothing in a request is opened as a path or fetched as a URL.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs, quote

from babel import Locale, UnknownLocaleError
from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from tapis.config import ConfigError, TapisError
from tapis.constrained import LEAST_BEAM
from tapis.glossary import Glossary
from tapis.search import Search
from tapis.serving.batches import Awaited, Batches, Lanes, QueueFullError, TranslateBatch
from tapis.serving.files import (
    SUFFIXES,
    Document,
    Downloads,
    Upload,
    document_of,
    joined_file,
    read_upload,
    translated_name,
)
from tapis.serving.limits import FAILED, ApiKeys, BodyLimit, Guard, TooManyKeysError, network_of
from tapis.serving.metrics import MeasuredRequests, Metrics
from tapis.serving.models import Answer, ForeignTextError, Kind, Models
from tapis.system.terminal import say
from tapis.text.languages import foreign_language, language_shares
from tapis.text.marks import take_out
from tapis.text.markup import Markup
from tapis.text.sentences import replace_lone_surrogates, split_line
from tapis.translation import Translation
from tapis.web import HTML, SCRIPT, STYLE

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

VERSION = "1"  # of the API
AUTO = "auto"  # a source language to be identified
MAX_ALTERNATIVES = 9
MAX_TEXTS = 256  # in one request
MAX_FIELDS = 1000  # of a form
BYTES_PER_CHARACTER = 12  # at most: an escaped pair of surrogates in JSON, or four escaped bytes in a form
PATHS = ("/translate", "/detect", "/translate_file", "/page/translate", "/languages", "/health")  # that are measured
TOKEN_WORK = 3  # characters that a token stands for at least: rare characters have several tokens each
LINE_WORK = 20  # what a line takes beside its characters, in characters
MARKUP_WORK = 1.5  # times the work of plain text
# Times the work of a sentence, for each term of a glossary in it: measured with a `multi30k` model and one to three
# terms a sentence. Half of the sentences were searched for anew.
TERM_WORK = 2
LONG_TEXT = 2_000  # characters; of more, the languages are identified and the lines found in another thread
TEXT_TO_IDENTIFY = 250  # what identifying the language of a text takes beside its characters, in characters
PAGE_SEARCH = Search(beam=5)
PAGE_SEARCH_OF_LINE = Search(beam=5, n_best=5)  # for a text of one line, of which the page shows alternatives


class TranslateRequest(BaseModel):
    """What to translate."""

    q: str | Annotated[list[str], Field(fail_fast=True)] = Field(description="A text, or several")
    source: str = Field(description="Its language, such as en; auto to identify it", examples=[AUTO])
    target: str = Field(description="The language to translate into", examples=["fr"])
    format: Literal["text", "html"] = Field("text", description="With html, only the text of a page is translated")
    alternatives: int = Field(0, ge=0, le=MAX_ALTERNATIVES, description="Number of further translations")
    api_key: str = Field("", description="A key, if the server asks for one")


class DetectRequest(BaseModel):
    """A text whose language is asked for."""

    q: str = Field(description="The text")
    api_key: str = Field("", description="A key, if the server asks for one")


class DetectedLanguage(BaseModel):
    """A language that a text may be in."""

    language: str
    confidence: float = Field(description="Probability in per cent, among the languages of the server")


class PageRequest(BaseModel):
    """What the page of the server asks for."""

    q: str
    source: str
    target: str
    api_key: str = ""


class FileRequest(BaseModel):
    """A file to translate."""

    file: Any = Field(
        description="A file of UTF-8 text: " + ", ".join(SUFFIXES),
        json_schema_extra={"type": "string", "format": "binary"},
    )
    source: str = Field(description="Its language, such as en; auto to identify it", examples=[AUTO])
    target: str = Field(description="The language to translate into", examples=["fr"])
    api_key: str = Field("", description="A key, if the server asks for one")


class FileAnswer(BaseModel):
    """Where the translated file is, for ten minutes."""

    translatedFileUrl: str  # noqa: N815 - LibreTranslate's name


class TranslateAnswer(BaseModel):
    """The translation, with the language and the alternatives if they were asked for; lists of them if q was a list."""

    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's name
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class Language(BaseModel):
    """A language to translate from."""

    code: str
    name: str
    targets: list[str] = Field(description="Languages that it is translated into, and itself")


class ErrorAnswer(BaseModel):
    """What is wrong with a request."""

    error: str


class RequestError(Exception):
    """A request that cannot be answered, with the status that says so."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


@dataclass(frozen=True)
class Limits:
    """What a server accepts."""

    max_characters: int
    """Of the texts of one request"""
    max_seconds: float
    """For reading a request, and for answering it"""
    max_work: float
    """Of one request (`work_of`)"""
    keys: ApiKeys
    origins: tuple[str, ...]
    """Sites whose pages may send requests and read answers"""
    hosts: tuple[str, ...]
    """Names of the server, besides those of the loopback interface"""


def ranked_texts(document: Document[str], answers: Sequence[Answer]) -> list[str]:
    """Return the translations of a document, best first, from the answers to its lines."""
    ranked = [answer.translations for answer in answers]
    n_ranks = max(map(len, ranked), default=1)
    # A line that has fewer translations, such as one of the memory, has its last one again.
    return [document.joined([line[min(rank, len(line) - 1)].text for line in ranked]) for rank in range(n_ranks)]


def work_of(lines: Sequence[str], search: Search, is_marked_up: bool, n_tokens: int) -> float:
    """Estimate the work of a request, in characters of plain text translated by greedy search.

    n_tokens is the number of tokens of the lines (`Models.n_tokens`). Each answer to each line is one more; a blank
    line has one.
    """
    n_full = sum(map(bool, map(str.strip, lines)))
    n_characters = max(sum(map(len, lines)), TOKEN_WORK * n_tokens) + LINE_WORK * n_full
    n_answers = n_full * search.n_best + len(lines) - n_full
    return n_characters * search.beam * (MARKUP_WORK if is_marked_up else 1) + n_answers


def work_of_terms(
    lines: Sequence[str], language: str, glossary: Glossary, search: Search, n_tokens_of: Callable[[list[str]], int]
) -> float:
    """Estimate the work of the terms of a glossary, in the unit of `work_of`, which is that of the rest of the lines.

    A sentence may be searched for anew, until it has its terms, with a beam that grows with their number.
    """
    wider = Search(max(search.beam, LEAST_BEAM))
    work = 0.0
    with_terms = filter(glossary.places_in, lines)
    for sentence in (unit for line in with_terms for unit in split_line(line, language, lambda _: True).units):
        if places := glossary.places_in(sentence):
            n_tokens = n_tokens_of([sentence])
            work += TERM_WORK * len(places) * work_of([sentence], wider, is_marked_up=False, n_tokens=n_tokens)
    return work


def calls(work: Callable[[], T]) -> TranslateBatch[T]:
    """Return what translates for a queue of functions to call: its requests have a function and one line each."""
    return lambda lines, check: [work()]


def retrieve(future: asyncio.Future[Any]) -> None:
    """Look at the error of a future that nobody awaits any more, so that asyncio does not log it."""
    if not future.cancelled():
        future.exception()


async def until_disconnected(http: Request) -> None:
    """Return once the client of a request, whose body was read, has gone."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


class Api:
    """The answers to requests."""

    def __init__(
        self,
        models: Models,
        batches: Lanes[Kind, Answer],
        documents: Batches[Callable[[], Any], Any],
        metrics: Metrics,
        limits: Limits,
        beam: int,
    ) -> None:
        """documents is a queue of functions to call (`calls`)."""
        self.models = models
        self.batches = batches
        self.documents = documents
        self.metrics = metrics
        self.limits = limits
        self.beam = beam
        self.downloads = Downloads()

    async def answer(self, http: Request, form: type[M], answer: Callable[[Request, M], Coroutine[Any, Any, T]]) -> T:
        """Return the answer to a request, which is given with its body, a form.

        Raises RequestError if it cannot be read, if too many requests wait, if the answer takes too long, or if the
        client has gone. In all these cases, what has begun for the answer ends, but for a text that is being divided.
        """
        request = await self.read(http, form)
        answering = asyncio.ensure_future(answer(http, request))
        leaving = asyncio.ensure_future(until_disconnected(http))
        answering.add_done_callback(retrieve)
        waiting: set[asyncio.Future[Any]] = {answering, leaving}
        try:
            await asyncio.wait(waiting, timeout=self.limits.max_seconds, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            if leaving.done():
                raise RequestError(400, "the client has gone")  # nobody reads this
            raise RequestError(504, f"the translation took more than {self.limits.max_seconds:g} s")
        except QueueFullError as error:
            raise RequestError(429, str(error), {"Retry-After": str(error.retry_after)}) from None
        finally:
            answering.cancel()
            leaving.cancel()

    async def call(self, work: Callable[[], T], n_characters: int, client: str) -> T:
        """Return the result of some work on texts of a client.

        If they are long, it waits in the queue of documents, whose thread holds up no other requests. One such work is
        done at a time: several would take turns with this thread, which answers all others.
        """
        if n_characters <= LONG_TEXT:
            return work()
        (result,) = await asyncio.wrap_future(self.documents.submit(work, [""], client, n_characters))
        return result

    async def translate(self, http: Request, request: TranslateRequest) -> TranslateAnswer:
        """Answer /translate. Raises RequestError."""
        texts = [replace_lone_surrogates(q) for q in ([request.q] if isinstance(request.q, str) else request.q)]
        if len(texts) > MAX_TEXTS:
            raise RequestError(400, f"q has {len(texts):,} texts; the server accepts {MAX_TEXTS} at once")
        self.check_length(texts)

        detected = None
        sources = [request.source] * len(texts)
        if request.source == AUTO:
            documents = [document_of(text, is_html=request.format == "html") for text in texts]
            is_list = not isinstance(request.q, str)
            identify = partial(self.identify, target=request.target, may_be_foreign=is_list)
            client = self.client_of(http, request.api_key)
            n_characters = sum(map(len, texts)) + len(texts) * TEXT_TO_IDENTIFY
            shares = await self.call(
                lambda: [identify(text_to_identify(one.lines(), one.markup)) for one in documents], n_characters, client
            )
            detected = [DetectedLanguage(language=source, confidence=round(100 * share)) for source, share in shares]
            # A text in a foreign language stays as it is, as does one in the target language.
            known = self.models.languages_of_texts(request.target)
            sources = [source if source in known else request.target for source, _ in shares]
        ranked = await self.translate_texts(http, texts, sources, request)

        best = [translations[0] for translations in ranked]
        others = [translations[1:] for translations in ranked] if request.alternatives else None
        if not isinstance(request.q, str):
            return TranslateAnswer(translatedText=best, detectedLanguage=detected, alternatives=others)
        return TranslateAnswer(
            translatedText=best[0],
            detectedLanguage=detected[0] if detected else None,
            alternatives=others[0] if others else None,
        )

    def identify(self, text: str, target: str, *, may_be_foreign: bool = False) -> tuple[str, float]:
        """`Models.identify`. Raises RequestError.

        With may_be_foreign, it returns the language of a text that is clearly in another one, instead of raising.
        """
        try:
            return self.models.identify(text, target)
        except ConfigError as error:
            if may_be_foreign and isinstance(error, ForeignTextError):
                return error.language, 1.0
            raise RequestError(400, str(error)) from None

    def run_for(self, source: str, target: str) -> str:
        """`Models.run_for`. Raises RequestError."""
        try:
            return self.models.run_for(source, target)
        except ConfigError as error:
            raise RequestError(400, str(error)) from None

    async def translate_texts(
        self, http: Request, texts: Sequence[str], sources: Sequence[str], request: TranslateRequest
    ) -> list[list[str]]:
        """Return the translations of each text, best first. A text in the target language stays as it is.

        Raises RequestError.
        """
        rows_of: dict[str, list[int]] = {}  # the texts of each language
        for row, source in enumerate(sources):
            if source != request.target or source not in self.models.languages:
                rows_of.setdefault(source, []).append(row)
        kinds = [self.kind_for(source, request) for source in rows_of]
        is_html = request.format == "html"
        documents = {row: document_of(texts[row], is_html=is_html) for rows in rows_of.values() for row in rows}
        client, n_characters = self.client_of(http, request.api_key), sum(map(len, texts))
        lines_of = await self.call(lambda: {row: one.lines() for row, one in documents.items()}, n_characters, client)

        # One request to the queue for each language.
        parts = [[line for row in rows for line in lines_of[row]] for rows in rows_of.values()]
        answers = await self.answers(client, kinds, parts)

        answers_of: dict[int, list[Answer]] = {}
        for rows, of_language in zip(rows_of.values(), answers, strict=True):
            begin = 0
            for row in rows:
                end = begin + len(lines_of[row])
                answers_of[row] = of_language[begin:end]
                begin = end
        if is_html:  # which is parsed once for each translation
            n_characters *= 1 + request.alternatives
        ranked = await self.call(
            lambda: {row: ranked_texts(documents[row], one) for row, one in answers_of.items()}, n_characters, client
        )
        return [ranked.get(row, [text]) for row, text in enumerate(texts)]

    def kind_for(self, source: str, request: TranslateRequest) -> Kind:
        """Return what the texts of a request in a language are translated by. Raises RequestError if nothing does."""
        run = self.run_for(source, request.target)
        n_best = 1 + request.alternatives
        markup: Markup = "html" if request.format == "html" else ""
        return Kind(run, source, request.target, Search(max(self.beam, n_best), n_best), markup)

    async def answers(self, client: str, kinds: Sequence[Kind], parts: Sequence[list[str]]) -> list[list[Answer]]:
        """Return the answers to several parts of a request, of one kind each.

        Raises RequestError if they are too much work, and QueueFullError. If it is cancelled, their translation ends.
        """
        n_characters = sum(len(line) for lines in parts for line in lines)
        works = await self.call(lambda: list(map(self.estimated_work, kinds, parts)), n_characters, client)
        if (plain := sum(work for work, _ in works)) > self.limits.max_work:
            # The page has alternatives that nobody asked for.
            has_alternatives = any(kind.search.n_best > 1 and not kind.with_details for kind in kinds)
            what = "this text, with this many alternatives," if has_alternatives else "this text"
            advice = f"send about {int(100 * self.limits.max_work / plain)} % of it at a time"
            if has_alternatives:
                advice += ", or ask for fewer alternatives"
            raise RequestError(400, f"{what} is more work than the server accepts at once: {advice}")

        answers: list[Awaited[list[Answer]]] = []
        try:
            for kind, lines, (work, of_terms) in zip(kinds, parts, works, strict=True):
                answers.append(self.batches.submit(kind, lines, client, work + of_terms))
            return await asyncio.gather(*map(asyncio.wrap_future, answers))
        finally:
            for answer in answers:
                answer.cancel()  # does nothing once it is translated

    def estimated_work(self, kind: Kind, lines: Sequence[str]) -> tuple[float, float]:
        """Return the work of lines of one kind, and that of its glossary's terms, which --work-limit leaves out."""
        n_tokens_of = partial(self.models.n_tokens, kind.run)
        work = work_of(lines, kind.search, kind.markup == "html", n_tokens_of(lines))
        glossary = self.models.glossaries.get((kind.source, kind.target))
        if not glossary or self.models.configs[kind.run].terms:  # such a model needs no second search
            return work, 0.0
        return work, work_of_terms(lines, kind.source, glossary, kind.search, n_tokens_of)

    def client_of(self, http: Request, key: str) -> str:
        """Return who sends a request: the owner of its key or, where the server has no keys, an address."""
        return f"key {key}" if self.limits.keys else network_of(http)

    async def translate_page(self, http: Request, request: PageRequest) -> dict[str, Any]:
        """Answer /page/translate: the translation with what the page shows beside it. Raises RequestError."""
        text = replace_lone_surrogates(request.q)
        self.check_length([text])

        # Find the language, and say what the models do not know.
        if request.target not in self.models.target_languages:
            self.run_for(request.source, request.target)  # raises
        source, detected, notices = request.source, None, []
        lines = text.split("\n")
        client = self.client_of(http, request.api_key)
        languages = self.models.languages_of_texts(request.target)
        foreign, shares = await self.call(partial(languages_of, lines, languages), len(text), client)
        if foreign:
            notices.append(
                f"This seems to be {name_of(foreign)}, from which no model here translates into "
                f"{name_of(request.target)}."
            )
        if source == AUTO:
            source, share = shares[0]
            found = (foreign, 1.0) if foreign else (source, share)
            detected = {"language": found[0], "confidence": round(100 * found[1])}
        if source == request.target:
            return page_answer([Answer([Translation(line, 0.0)]) for line in lines], detected, notices)

        # Translate.
        search = PAGE_SEARCH_OF_LINE if len(lines) == 1 else PAGE_SEARCH
        run = self.run_for(source, request.target)
        kind = Kind(run, source, request.target, search, with_details=True, with_attention=len(lines) == 1)
        (answers,) = await self.answers(client, [kind], [lines])
        unknown = "".join(dict.fromkeys("".join(answer.unknown for answer in answers)))
        if unknown:
            notices.append(f"The model has not learned: {' '.join(unknown[:20])}. They may be lost or mistranslated.")
        return page_answer(answers, detected, notices)

    async def translate_file(self, http: Request, request: FileRequest) -> FileAnswer:
        """Answer /translate_file. Raises RequestError."""
        if not isinstance(request.file, Upload):
            raise RequestError(400, "file: send a file, in a form of the type multipart/form-data")
        client = self.client_of(http, request.api_key)
        try:
            document = request.file.document()
            text = document.content.decode("utf-8", "ignore")
            self.check_length([text])
            lines = await self.call(document.lines, len(text), client)
        except TapisError as error:
            raise RequestError(400, f"the file {error}" if str(error).startswith("is ") else str(error)) from None
        source = request.source
        if source == AUTO:
            source, _ = await self.call(
                lambda: self.identify(text_to_identify(lines, document.markup), request.target), len(text), client
            )
        if source == request.target and source in self.models.languages:
            result = document.content
        else:
            run = self.run_for(source, request.target)
            kind = Kind(run, source, request.target, Search(self.beam), document.markup)
            (answers,) = await self.answers(client, [kind], [lines])
            best = [answer.translations[0] for answer in answers]
            result = await self.call(partial(joined_file, document, lines, best), len(text), client)
        name = self.downloads.add(translated_name(request.file.name, request.target), result, client)
        return FileAnswer(translatedFileUrl=str(http.url_for("download_file", name=quote(name))))

    def download(self, http: Request, name: str) -> Response:
        """Answer /download_file. Raises RequestError."""
        key = ""
        if self.limits.keys:
            scheme, _, given = http.headers.get("authorization", "").partition(" ")
            key = given.strip() if scheme.lower() == "bearer" else http.query_params.get("api_key", "")
            self.check_key(http, key)
        file = self.downloads.get(name)
        if file is None or (self.limits.keys and file.client != self.client_of(http, key)):
            raise RequestError(404, "there is no such file; translated files are kept for ten minutes")
        disposition = f"attachment; filename*=UTF-8''{quote(file.name)}"
        return Response(
            file.content, media_type="application/octet-stream", headers={"Content-Disposition": disposition}
        )

    def settings(self) -> dict[str, Any]:
        """Answer /frontend/settings."""
        source, target = next(iter(self.models.pairs))
        return {
            "charLimit": self.limits.max_characters,
            "frontendTimeout": 250,
            "apiKeys": bool(self.limits.keys),
            "keyRequired": bool(self.limits.keys),
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": list(SUFFIXES),
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
        }

    async def detect(self, http: Request, request: DetectRequest) -> list[DetectedLanguage]:
        """Answer /detect. Raises RequestError."""
        text = replace_lone_surrogates(request.q)
        self.check_length([text])
        client = self.client_of(http, request.api_key)
        what = partial(languages_of, text.split("\n"), self.models.languages)
        foreign, shares = await self.call(what, len(text), client)
        if foreign:
            return [DetectedLanguage(language=foreign, confidence=100)]
        return [DetectedLanguage(language=language, confidence=round(100 * share)) for language, share in shares]

    def languages(self) -> list[Language]:
        """Answer /languages."""
        return [
            Language(code=one, name=name_of(one), targets=sorted({one, *self.models.targets(one)}))
            for one in self.models.languages
        ]

    async def read(self, http: Request, form: type[M]) -> M:
        """Return the body of a request, JSON or a form. Raises RequestError if it is neither, or for a wrong key."""
        try:
            body = await body_of_request(http)
            if isinstance(body, dict):  # a field without a value counts as absent, except an empty text
                body = {
                    name: value for name, value in body.items() if value is not None and (value != "" or name == "q")
                }
            request = form.model_validate(body)
        except ClientDisconnect:
            raise RequestError(400, "the request ended too early") from None  # nobody reads this
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if part not in ("str", "list[str]"))
            raise RequestError(400, f"{place or 'body'}: {first['msg']}") from None
        except (ValueError, RecursionError):
            raise RequestError(400, "the body of the request is not JSON") from None
        self.check_key(http, getattr(request, "api_key", ""))
        return request

    def check_key(self, http: Request, key: str) -> None:
        """Raise RequestError if the server has keys and this is none of them."""
        try:
            is_accepted = self.limits.keys.allow(key, network_of(http))
        except TooManyKeysError:
            raise RequestError(429, "too many wrong keys; try again in a minute", {"Retry-After": "60"}) from None
        if not is_accepted:
            raise RequestError(403, "a valid api_key is needed")

    def check_length(self, texts: Sequence[str]) -> None:
        """Raise RequestError if the texts are too long together."""
        n_characters = sum(map(len, texts))
        if n_characters > self.limits.max_characters:
            limit = f"the server accepts {self.limits.max_characters:,}"
            raise RequestError(400, f"the text has {n_characters:,} characters; {limit}")


async def body_of_request(http: Request) -> Any:
    """Return the fields of a request: of its body, JSON or a form, and of its URL. A field that comes twice is a list.

    Raises RequestError, ValueError or RecursionError if they cannot be read.
    """
    media_type = http.headers.get("content-type", "").lower()
    in_url = fields_of(http.url.query)
    if media_type.startswith("application/json"):
        body = await http.json()
        return {**only_values(in_url), **body} if isinstance(body, dict) else body
    fields: dict[str, list[Any]]
    if media_type.startswith("multipart/"):
        try:
            fields = await read_upload(http, MAX_FIELDS)
        except ValueError as error:
            raise RequestError(400, f"the form cannot be read: {error}") from None
    else:  # Starlette would read bytes that are not percent-encoded, as curl sends them, as Latin-1
        text = (await http.body()).decode("utf-8", "replace")
        fields = dict(fields_of(text))
        if text.lstrip().startswith("{") and "q" not in {**in_url, **fields}:
            raise RequestError(400, "this looks like JSON: send it with the header Content-Type: application/json")
    return only_values({**in_url, **fields})


def fields_of(form: str) -> dict[str, list[str]]:
    """Return the values of each field of a form. Raises RequestError if there are too many."""
    try:
        return parse_qs(form, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        raise RequestError(400, f"the form has more than {MAX_FIELDS:,} fields") from None


def only_values(fields: dict[str, list[Any]]) -> dict[str, Any]:
    """Return each field with its only value, or with the list of its values."""
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


def page_answer(answers: Sequence[Answer], detected: Any, notices: list[str]) -> dict[str, Any]:
    """Return what the page shows for the answers to the lines of a text."""
    best = [answer.translations[0] for answer in answers]
    n_sentences = sum(len(answer.sentences) for answer in answers)
    alternatives: list[Translation] = answers[0].translations if len(answers) == n_sentences == 1 else []
    attention = answers[0].attention if alternatives else None
    return {
        "lines": [line_answer(one) for one in best],
        "detectedLanguage": detected,
        "notices": notices,
        "alternatives": [{"text": one.text, "score": one.score, "doubts": one.doubts} for one in alternatives],
        "attention": attention
        and {
            "source": attention.source,
            "target": attention.target,
            "rows": attention.weights[-1].mean(axis=0).tolist(),
        },
        "sentences": n_sentences,
        "memory": [
            {"line": number, **answer.remembered._asdict()}
            for number, answer in enumerate(answers, 1)
            if answer.remembered
        ],
    }


def line_answer(line: Translation) -> dict[str, Any]:
    """Return what the page shows of a line's translation: of each sentence, so that it underlines these alone."""
    sentences = [{"text": sentence.text, "doubts": sentence.doubts} for sentence in line.sentences]
    return {"text": line.text, "doubts": line.doubts, "sentences": sentences}


def languages_of(lines: Sequence[str], languages: Sequence[str]) -> tuple[str | None, list[tuple[str, float]]]:
    """Return what `foreign_language` and `language_shares` say of the lines of a text."""
    text = text_to_identify(lines)
    return foreign_language(text, languages), language_shares(text, languages)


def text_to_identify(lines: Sequence[str], markup: Markup = "") -> str:
    """Return lines of a text or document without what is in no language: tags, links, codes, pictographs."""
    return "\n".join(take_out(line, markup=markup).text for line in lines)


def name_of(language: str) -> str:
    """Return the English name of a language, or its code if there is none."""
    try:
        return Locale.parse(language.replace("-", "_")).english_name or language
    except (UnknownLocaleError, ValueError):
        return language


def api_app(api: Api) -> FastAPI:
    """Return the API as an application for a web server. It closes the queues when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(api.documents.close, api.limits.max_seconds)
        await asyncio.to_thread(api.batches.close, api.limits.max_seconds)

    app = FastAPI(
        title="Tapis",
        version=VERSION,
        description="Translation by models that Tapis trained; the API of LibreTranslate.",
        docs_url=None,  # see `add_docs`
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,  # no answer leads elsewhere
        lifespan=lifespan,
    )
    add_docs(app)
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": ErrorAnswer, "description": description}
        for status, description in {
            400: "The request is wrong",
            403: "A key is needed",
            408: "The request arrived too slowly",
            413: "The request is too long",
            429: "Too many requests wait; Retry-After has the seconds to wait",
            504: "The translation took too long",
        }.items()
    }

    @app.post("/translate", responses=errors, openapi_extra=body_of(TranslateRequest), response_model=TranslateAnswer)
    async def translate(http: Request) -> Response:
        """Translate a text, or a list of texts."""
        answer = await api.answer(http, TranslateRequest, api.translate)
        return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")

    @app.post("/detect", responses=errors, openapi_extra=body_of(DetectRequest))
    async def detect(http: Request) -> list[DetectedLanguage]:
        """Return the languages that a text may be in, the most probable first."""
        return await api.answer(http, DetectRequest, api.detect)

    @app.post("/translate_file", responses=errors, openapi_extra=body_of(FileRequest, ["multipart/form-data"]))
    async def translate_file(http: Request) -> FileAnswer:
        """Translate a file. Its translation is kept in memory, for ten minutes."""
        return await api.answer(http, FileRequest, api.translate_file)

    @app.get("/download_file/{name}", response_class=Response, responses={404: {"model": ErrorAnswer}, **errors})
    async def download_file(http: Request, name: str) -> Response:
        """Return a translated file. A server with keys wants the key that made it, as `Authorization: Bearer KEY`."""
        return api.download(http, name)

    @app.post("/page/translate", include_in_schema=False)
    async def translate_page(http: Request) -> dict[str, Any]:
        return await api.answer(http, PageRequest, api.translate_page)

    @app.post("/suggest", include_in_schema=False)
    async def suggest() -> None:
        raise RequestError(403, "Suggestions are disabled on this server.")

    @app.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Return the limits and the formats of files."""
        return api.settings()

    @app.get("/spec", include_in_schema=False)
    async def spec() -> dict[str, Any]:
        return app.openapi()

    @app.get("/languages")
    async def languages() -> list[Language]:
        """Return the languages to translate from."""
        return api.languages()

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> dict[str, str]:
        """Return "ok" while the server runs."""
        return {"status": "ok"}

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Return counters and times, for Prometheus."""
        return Response(api.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    add_error_answers(app)
    add_middleware(app, api)
    return app


def add_error_answers(app: FastAPI) -> None:
    """Answer errors with their status and {"error": what is wrong}."""

    @app.exception_handler(RequestError)
    async def on_request_error(_: Request, error: RequestError) -> JSONResponse:
        return JSONResponse({"error": replace_lone_surrogates(str(error))}, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def on_http_error(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(TapisError)
    async def on_tapis_error(http: Request, error: TapisError) -> JSONResponse:
        """Answer without its message, which may name files of this machine; only the server's log has it."""
        say(f"{http.url.path}: {error}")
        return JSONResponse({"error": FAILED}, 500)


def add_middleware(app: FastAPI, api: Api) -> None:
    """Add limits, CORS and measurements around the application. What is added last runs first."""
    limits = api.limits
    max_bytes = BYTES_PER_CHARACTER * limits.max_characters + 10_000
    app.add_middleware(BodyLimit, max_bytes=max_bytes, max_seconds=limits.max_seconds)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=limits.origins,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["Retry-After"],
    )
    app.add_middleware(Guard, hosts=limits.hosts, origins=limits.origins)
    app.add_middleware(MeasuredRequests, metrics=api.metrics, paths=PATHS)


def add_docs(app: FastAPI) -> None:
    """Add the page that describes the API, with its script and its style, from memory; their addresses are relative."""
    page = get_swagger_ui_html(
        openapi_url="spec",
        title="Tapis",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url="docs/favicon.png",
    )
    files: dict[str, tuple[str, bytes]] = {"/docs": (HTML, bytes(page.body))}
    for name, media_type in (("swagger-ui-bundle.js", SCRIPT), ("swagger-ui.css", STYLE), ("favicon.png", "image/png")):
        files[f"/docs/{name}"] = media_type, (resources.files("fastapi_offline") / "static" / name).read_bytes()
    add_page(app, files)


def add_page(app: FastAPI, files: Mapping[str, tuple[str, bytes]]) -> None:
    """Add the page: files has the media type and the content of each path."""
    for path, (media_type, content) in files.items():
        app.add_route(path, partial(file_response, media_type, content), methods=["GET"], include_in_schema=False)


async def file_response(media_type: str, content: bytes, _: Request) -> Response:
    """Return a file from memory."""
    return Response(content, media_type=media_type)


FORM_TYPES = ("application/json", "application/x-www-form-urlencoded")


def body_of(form: type[BaseModel], types: Sequence[str] = FORM_TYPES) -> dict[str, Any]:
    """Return the description of a body that may be of several types."""
    schema = {"schema": form.model_json_schema()}
    return {"requestBody": {"required": True, "content": dict.fromkeys(types, schema)}}
