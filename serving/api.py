"""The HTTP API that clients of LibreTranslate speak (https://docs.libretranslate.com), over the models of a server.

    POST /translate    q, source, target, format, alternatives, api_key: a text or a list of them
    POST /detect       q, api_key: the languages that a text may be in
    GET  /languages    the language pairs
    GET  /health       whether the server runs
    GET  /metrics      counters and times, for Prometheus
    GET  /docs         this API, to read and to try

Requests are JSON or an HTML form; answers are JSON. An error has a status and {"error": what is wrong}.
"""

import asyncio
import html
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qs

from babel import Locale, UnknownLocaleError
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from config import ConfigError, TapisError
from decoding.search import Search
from serving.batches import Batches, QueueFullError
from serving.limits import ApiKeys, BodyLimit, EndsWithServer
from serving.metrics import MeasuredRequests, Metrics
from serving.models import Answer, Kind, Models
from text.cleaning import TAG, language_shares
from text.documents import translated_html
from text.sentences import replace_lone_surrogates

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

AUTO = "auto"  # a source language to be identified
MAX_ALTERNATIVES = 9
MAX_TEXTS = 256  # in one request
MAX_FIELDS = 1000  # of a form
BYTES_PER_CHARACTER = 12  # at most: an escaped pair of surrogates in JSON, or four escaped bytes in a form
PATHS = ("/translate", "/detect", "/languages", "/health")  # that are measured


class TranslateRequest(BaseModel):
    """What to translate."""

    q: str | list[str] = Field(description="A text, or several")
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


class TranslateAnswer(BaseModel):
    """The translation, with the language and the alternatives if they were asked for; lists of them if q was a list."""

    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's name
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class Language(BaseModel):
    """A language to translate from."""

    code: str
    name: str
    targets: list[str] = Field(description="Languages that it is translated into")


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
    keys: ApiKeys = field(default_factory=ApiKeys)
    origins: tuple[str, ...] = ()
    """Sites whose pages may read answers"""


class SplitText(NamedTuple):
    """A text to translate: its lines, and what puts their translations together."""

    lines: list[str]
    join: Callable[[Sequence[str]], str]


def split_text(text: str, is_html: bool) -> SplitText:
    """A text or a fragment of a page as lines to translate."""
    if not is_html:
        return SplitText(text.split("\n"), "\n".join)
    lines: list[str] = []

    def collect(found: Sequence[str]) -> list[str]:
        lines.extend(found)
        return lines

    translated_html(text, collect)
    return SplitText(lines, lambda translations: translated_html(text, lambda _: list(translations)))


def joined(text: SplitText, answers: Sequence[Answer]) -> list[str]:
    """The translations of a text, best first, from the answers to its lines."""
    ranked = [answer.translations for answer in answers]
    n_ranks = min(map(len, ranked), default=1)
    texts = [text.join([line[rank].text for line in ranked]) for rank in range(n_ranks)]
    return list(dict.fromkeys(texts))  # some differ in their tokens alone


async def away_if_long(is_long: bool, work: Callable[[], T]) -> T:
    """The result of some work. If it may take long, it is done in another thread, to hold up no other requests."""
    return await asyncio.to_thread(work) if is_long else work()


class Api:
    """The answers to requests."""

    def __init__(
        self, models: Models, batches: Batches[Kind, Answer], metrics: Metrics, limits: Limits, beam: int
    ) -> None:
        self.models = models
        self.batches = batches
        self.metrics = metrics
        self.limits = limits
        self.beam = beam

    async def translate(self, http: Request) -> TranslateAnswer:
        """Answers /translate. Raises RequestError."""
        request = await self.read(http, TranslateRequest)
        texts = [replace_lone_surrogates(q) for q in ([request.q] if isinstance(request.q, str) else request.q)]
        if len(texts) > MAX_TEXTS:
            raise RequestError(400, f"q has {len(texts):,} texts; the server accepts {MAX_TEXTS} at once")
        self.check_length(texts)

        detected = None
        sources = [request.source] * len(texts)
        if request.source == AUTO:
            is_html = request.format == "html"
            shares = [self.identify(visible_text(text, is_html), request.target) for text in texts]
            detected = [DetectedLanguage(language=source, confidence=round(100 * share)) for source, share in shares]
            sources = [source for source, _ in shares]
        ranked = await self.translate_texts(texts, sources, request)

        best = [translations[0] for translations in ranked]
        others = [translations[1:] for translations in ranked] if request.alternatives else None
        if not isinstance(request.q, str):
            return TranslateAnswer(translatedText=best, detectedLanguage=detected, alternatives=others)
        return TranslateAnswer(
            translatedText=best[0],
            detectedLanguage=detected[0] if detected else None,
            alternatives=others[0] if others else None,
        )

    def identify(self, text: str, target: str) -> tuple[str, float]:
        """`Models.identify`. Raises RequestError."""
        try:
            return self.models.identify(text, target)
        except ConfigError as error:
            raise RequestError(400, str(error)) from None

    async def translate_texts(
        self, texts: Sequence[str], sources: Sequence[str], request: TranslateRequest
    ) -> list[list[str]]:
        """The translations of each text, best first. A text in the target language stays as it is.

        Raises RequestError.
        """
        results = [[text] for text in texts]
        rows_of: dict[str, list[int]] = {}  # the texts of each language
        for row, source in enumerate(sources):
            if source != request.target or source not in self.models.languages:
                rows_of.setdefault(source, []).append(row)
        kinds = [self.kind_for(source, request) for source in rows_of]
        is_html = request.format == "html"
        split = await away_if_long(is_html, lambda: [split_text(text, is_html) for text in texts])

        # One request to the queue for each language.
        parts = [[line for row in rows for line in split[row].lines] for rows in rows_of.values()]
        answers = await self.answers(kinds, parts)

        for rows, of_language in zip(rows_of.values(), answers, strict=True):
            begin = 0
            for row in rows:
                end = begin + len(split[row].lines)
                results[row] = await away_if_long(is_html, partial(joined, split[row], of_language[begin:end]))
                begin = end
        return results

    def kind_for(self, source: str, request: TranslateRequest) -> Kind:
        """What the texts of a request in a language are translated by. Raises RequestError if nothing does."""
        try:
            run = self.models.run_for(source, request.target)
        except ConfigError as error:
            raise RequestError(400, str(error)) from None
        n_best = 1 + request.alternatives
        return Kind(run, source, request.target, Search(max(self.beam, n_best), n_best), request.format == "html")

    async def answers(self, kinds: Sequence[Kind], parts: Sequence[list[str]]) -> list[list[Answer]]:
        """The answers to several parts of a request, of one kind each.

        Raises RequestError if too many requests wait, or if they take too long.
        """
        answers: list[Future[list[Answer]]] = []
        try:
            for kind, lines in zip(kinds, parts, strict=True):
                answers.append(self.batches.submit(kind, lines))
            async with asyncio.timeout(self.limits.max_seconds):
                return list(await asyncio.gather(*map(asyncio.wrap_future, answers)))
        except QueueFullError as error:
            raise RequestError(429, str(error), {"Retry-After": str(error.retry_after)}) from None
        except TimeoutError:
            raise RequestError(504, f"the translation took more than {self.limits.max_seconds:g} s") from None
        finally:
            for answer in answers:
                answer.cancel()  # does nothing once it is translated

    async def detect(self, http: Request) -> list[DetectedLanguage]:
        """Answers /detect. Raises RequestError."""
        request = await self.read(http, DetectRequest)
        text = replace_lone_surrogates(request.q)
        self.check_length([text])
        shares = language_shares(text, self.models.languages)
        return [DetectedLanguage(language=language, confidence=round(100 * share)) for language, share in shares]

    def languages(self) -> list[Language]:
        """Answers /languages."""
        sources = dict.fromkeys(source for source, _ in self.models.pairs)
        return [Language(code=one, name=name_of(one), targets=self.models.targets(one)) for one in sources]

    async def read(self, http: Request, form: type[M]) -> M:
        """The body of a request, JSON or a form. Raises RequestError if it is neither, or its key is not accepted."""
        try:
            body = await body_of_request(http)
            if isinstance(body, dict):  # a field without a value counts as absent
                fields = [field for field in body.items() if field[1] is not None and field != ("format", "")]
                body = dict(fields)
            request = form.model_validate(body)
        except ClientDisconnect:
            raise RequestError(400, "the request ended too early") from None  # nobody reads this
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"] if part not in ("str", "list[str]"))
            raise RequestError(400, f"{place or 'body'}: {first['msg']}") from None
        except (ValueError, RecursionError):
            raise RequestError(400, "the body of the request is not JSON") from None
        if not self.limits.keys.allow(getattr(request, "api_key", "")):
            raise RequestError(403, "a valid api_key is needed")
        return request

    def check_length(self, texts: Sequence[str]) -> None:
        """Raises RequestError if the texts are too long together."""
        n_characters = sum(map(len, texts))
        if n_characters > self.limits.max_characters:
            limit = f"the server accepts {self.limits.max_characters:,}"
            raise RequestError(400, f"the text has {n_characters:,} characters; {limit}")


async def body_of_request(http: Request) -> Any:
    """The fields of a request in JSON or in a form, with a list of the values that a field of a form has twice.

    Raises ValueError, or RecursionError, if they cannot be read.
    """
    media_type = http.headers.get("content-type", "").lower()
    if media_type.startswith("application/json"):
        return await http.json()
    if media_type.startswith("multipart/"):
        form = await http.form()
        fields: dict[str, list[Any]] = {name: form.getlist(name) for name in form}
    else:  # Starlette would read bytes that are not percent-encoded, as curl sends them, as Latin-1
        text = (await http.body()).decode("utf-8", "replace")
        fields = dict(parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS))
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}


def visible_text(text: str, is_html: bool) -> str:
    """The text of a fragment of a page, roughly, to identify its language by."""
    return html.unescape(TAG.sub(" ", text)) if is_html else text


def name_of(language: str) -> str:
    """The English name of a language, or its code if there is none."""
    try:
        return Locale.parse(language.replace("-", "_")).english_name or language
    except (UnknownLocaleError, ValueError):
        return language


def api_app(api: Api, version: str) -> FastAPI:
    """The API as an application for a web server. It closes the queue when it ends."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(api.batches.close, api.limits.max_seconds)

    app = FastAPIOffline(
        title="Tapis",
        version=version,
        description="Translation by models that Tapis trained; the API of LibreTranslate.",
        redoc_url=None,
        lifespan=lifespan,
    )
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
        """Translates a text, or a list of texts."""
        answer = await api.translate(http)
        return Response(answer.model_dump_json(exclude_none=True), media_type="application/json")

    @app.post("/detect", responses=errors, openapi_extra=body_of(DetectRequest))
    async def detect(http: Request) -> list[DetectedLanguage]:
        """The languages that a text may be in, the most probable first."""
        return await api.detect(http)

    @app.get("/languages")
    async def languages() -> list[Language]:
        """The languages to translate from."""
        return api.languages()

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Returns "ok" while the server runs."""
        return {"status": "ok"}

    @app.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Counters and times, for Prometheus."""
        return Response(api.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.exception_handler(RequestError)
    async def on_request_error(_: Request, error: RequestError) -> JSONResponse:
        return JSONResponse({"error": replace_lone_surrogates(str(error))}, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def on_http_error(_: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    # Messages of these errors may name files of this machine. Only the server's log has them.

    @app.exception_handler(TapisError)
    async def on_tapis_error(http: Request, error: TapisError) -> JSONResponse:
        print(f"{http.url.path}: {error}", file=sys.stderr, flush=True)
        return await on_bug(http, error)

    @app.exception_handler(Exception)
    async def on_bug(_: Request, __: Exception) -> JSONResponse:
        return JSONResponse({"error": "the server failed; its log says why"}, 500)

    # Middleware that is added last runs first. Without CORSMiddleware, Gradio would allow every site to read answers.
    limits = api.limits
    max_bytes = BYTES_PER_CHARACTER * limits.max_characters + 10_000
    app.add_middleware(BodyLimit, max_bytes=max_bytes, max_seconds=limits.max_seconds)
    app.add_middleware(CORSMiddleware, allow_origins=limits.origins, allow_methods=["*"], allow_headers=["*"])
    app.add_middleware(EndsWithServer, path="/gradio_api/heartbeat")
    app.state.is_stopping = lambda: False
    app.add_middleware(MeasuredRequests, metrics=api.metrics, paths=PATHS)
    return app


def body_of(form: type[BaseModel]) -> dict[str, Any]:
    """The description of a body that may be JSON or a form."""
    schema = {"schema": form.model_json_schema()}
    types = ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": dict.fromkeys(types, schema)}}
