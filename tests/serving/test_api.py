"""The API: what clients of LibreTranslate send, and what they must not be able to do."""

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import eventually

pytest.importorskip("fastapi")

from fastapi.testclient import TestClient
from pydantic import ValidationError
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from timing import takes_less_than

from checkpoint import RunFolder
from config import Config
from decoding.translator import CheckoutFiles, Translator
from tapis.commands.serve import application, behind_proxies, url_of
from tapis.config import ConfigError, TapisError
from tapis.glossary import Glossary, Term
from tapis.search import Search
from tapis.serving.api import LONG_TEXT, TranslateRequest, work_of
from tapis.serving.batches import QUICK_WORK, Check, Lanes, TranslateBatch
from tapis.serving.files import MAX_BYTES, MAX_FILES, SUFFIXES, Document, Downloads, Upload, joined_file
from tapis.serving.limits import WRONG_KEYS, ApiKeys, BodyLimit, TooManyKeysError, network_of
from tapis.serving.models import Answer, Kind, Models, find_models
from tapis.system.cli import ServeOptions
from tapis.text.languages import language_identifier
from tapis.translation import Translation

PAIRS = "en-fr, fr-en, en-de, de-en"
SECRET = "/home/someone/weights"


class Echo(Models):
    """Models that give each line back with the target language, and note what they were given."""

    def __init__(self) -> None:
        pairs = ("en-fr", "fr-en", "en-de", "de-en")
        configs = {"one": Config(pairs=("en-fr",)), "all": Config(pairs=pairs)}
        super().__init__(configs, lambda run: None, 1)  # type: ignore[arg-type, return-value]
        self.kinds: list[Kind] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def translator_of(self, kind: Kind) -> TranslateBatch[Answer]:
        return partial(self.translate, kind)

    def translate(self, kind: Kind, lines: Sequence[str], check: Check) -> list[Answer]:
        self.kinds.append(kind)
        while not self.may_go_on.wait(0.01):
            check()
        if "damaged" in lines:
            raise TapisError(f"{SECRET}/model.safetensors is damaged")
        if "refused" in lines:
            raise ConfigError(f"{SECRET} is an export")
        if "bug" in lines:
            raise ZeroDivisionError(SECRET)
        ranks = range(kind.search.n_best)
        return [Answer([Translation(f"{kind.target}{k or ''}:{line}", 0.0) for k in ranks]) for line in lines]


@pytest.fixture
def models() -> Echo:
    return Echo()


def client_of(models: Echo, keys: ApiKeys | None = None, **options: Any) -> TestClient:
    app = application(ServeOptions(no_page=True, **options), models, keys or ApiKeys())
    return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)


@pytest.fixture
def client(models: Echo) -> Iterator[TestClient]:
    with client_of(models) as client:
        yield client


def ask(client: TestClient, q: Any = "Hello.", source: str = "en", target: str = "fr", **others: Any) -> Any:
    return client.post("/translate", json={"q": q, "source": source, "target": target, **others})


def test_a_text_keeps_its_lines(client: TestClient) -> None:
    assert ask(client, "One.\n\nTwo.").json() == {"translatedText": "fr:One.\nfr:\nfr:Two."}
    assert ask(client, "").json() == {"translatedText": "fr:"}


def test_a_line_loses_the_spaces_around_it_and_ends_with_lf(run_folder: RunFolder) -> None:
    models = find_models(["tiny"], CheckoutFiles, lambda path: Translator.load(path, "cpu"), 1)
    with TestClient(application(ServeOptions(), models, ApiKeys()), base_url="http://localhost") as client:
        one, two = (ask(client, text).json()["translatedText"] for text in ("A cat.", "A dog."))
        answer = ask(client, "  A cat. \r\n \r\n\tA dog.\u3000\r\n").json()
    assert one and two and answer == {"translatedText": f"{one}\n\n{two}\n"}


def test_a_list_gives_a_list(client: TestClient) -> None:
    assert ask(client, ["One.", "Two.\nThree."]).json() == {"translatedText": ["fr:One.", "fr:Two.\nfr:Three."]}
    assert ask(client, []).json() == {"translatedText": []}


def test_a_form_is_a_request_too(client: TestClient) -> None:
    one = client.post("/translate", data={"q": "5", "source": "en", "target": "fr", "alternatives": "1"})
    assert one.json() == {"translatedText": "fr:5", "alternatives": ["fr1:5"]}
    for_files = client.post("/translate", files={"q": (None, "é")}, data={"source": "en", "target": "fr"})
    assert for_files.json() == {"translatedText": "fr:é"}
    raw = "q=Il fait très beau + ça&source=fr&target=en".encode()  # as curl -d sends it
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert client.post("/translate", content=raw, headers=form).json() == {
        "translatedText": "en:Il fait très beau   ça"
    }
    two = client.post("/translate", data={"q": ["One.", "Two."], "source": "en", "target": "de"})
    assert two.json() == {"translatedText": ["de:One.", "de:Two."]}


def test_the_first_run_for_a_pair_translates_it(client: TestClient, models: Echo) -> None:
    for source, target in (("en", "fr"), ("en", "de"), ("fr", "en")):
        ask(client, "x", source, target)
    assert [kind.run for kind in models.kinds] == ["one", "all", "all"]


def test_a_language_is_identified_for_each_text(client: TestClient, models: Echo) -> None:
    texts = ["The weather is very nice today.", "Das Wetter ist heute sehr schön."]
    answer = ask(client, texts[1], "auto", "fr")  # nothing translates from German into French
    assert answer.status_code == 400 and "another language (de)" in answer.json()["error"] and not models.kinds
    answer = ask(client, texts, "auto", "fr").json()  # in a list, it fails no other text
    assert answer["translatedText"] == [f"fr:{texts[0]}", texts[1]]
    assert answer["detectedLanguage"][1] == {"language": "de", "confidence": 100}
    models.kinds.clear()
    answer = ask(client, [*texts, "Il fait très beau aujourd'hui."], "auto", "en").json()
    assert [one["language"] for one in answer["detectedLanguage"]] == ["en", "de", "fr"]
    assert answer["translatedText"] == [texts[0], f"en:{texts[1]}", "en:Il fait très beau aujourd'hui."]
    assert {kind.source for kind in models.kinds} == {"de", "fr"}
    one = ask(client, texts[1], "auto", "en").json()["detectedLanguage"]
    assert one["language"] == "de" and 50 < one["confidence"] <= 100


def test_what_is_in_no_language_is_not_foreign(client: TestClient) -> None:
    for text in (
        "🎉🎉🎉🎉🎉🎉🎉🎉",
        "Ha ha ha ha ha!",
        "d41d8cd98f00b204e9800998ecf8427e",
        "https://example.org/ein/hund",
    ):
        assert ask(client, text, "auto").json()["translatedText"] in (f"fr:{text}", text)
        assert client.post("/detect", data={"q": text}).json()[0]["language"] in ("en", "fr", "de")
        page = client.post("/page/translate", json={"q": text, "source": "en", "target": "fr"}).json()
        assert page["notices"] == []


def test_fields_without_a_value_are_absent(client: TestClient) -> None:
    body = {"q": "5", "source": "en", "target": "fr", "format": None, "alternatives": None, "api_key": None}
    assert client.post("/translate", json=body).json() == {"translatedText": "fr:5"}
    assert client.post("/translate", json={**body, "format": ""}).json() == {"translatedText": "fr:5"}
    answer = client.post("/translate", json={**body, "q": None})
    assert answer.status_code == 400 and answer.json() == {"error": "q: Field required"}


def test_markup_has_no_language(client: TestClient) -> None:
    page = '<p class="the house of the cat that is"><a href="/the/house/is/here">.</a> Bonjour à tous</p>'
    answer = ask(client, page, "auto", "en", format="html").json()
    assert answer["detectedLanguage"]["language"] == "fr"


def test_scripts_styles_and_links_have_no_language(client: TestClient) -> None:
    page = (
        "<style>.the-house-of-the-cat { background: white; color: red }</style>"
        "<script>if (this.house && this.cat) { alert('there is a cat in the house') }</script><p>Bonjour à tous</p>"
    )
    assert ask(client, page, "auto", "en", format="html").json()["detectedLanguage"]["language"] == "fr"
    text = "https://example.org/the/house/of/the/cat/that/is/here Bonjour à tous"
    assert ask(client, text, "auto", "en").json()["detectedLanguage"]["language"] == "fr"


def test_a_text_in_the_target_language_stays(client: TestClient, models: Echo) -> None:
    assert ask(client, "Déjà <vu>.", "fr", "fr").json() == {"translatedText": "Déjà <vu>."}
    assert not models.kinds


def test_of_html_only_the_text_is_translated(client: TestClient, models: Echo) -> None:
    page = "<p class=\"x\">One <b>two</b>.</p>\n<script>alert('no')</script><p>Three.</p>"
    expected = "<p class=\"x\">fr:One <b>two</b>.</p>\n<script>alert('no')</script><p>fr:Three.</p>"
    assert ask(client, page, format="html").json() == {"translatedText": expected}
    assert models.kinds[0].markup == "html"
    ask(client, page)
    assert not models.kinds[1].markup


def test_alternatives_are_further_translations(client: TestClient, models: Echo) -> None:
    answer = ask(client, ["a\nb", "c"], alternatives=2).json()
    assert answer["translatedText"] == ["fr:a\nfr:b", "fr:c"]
    assert answer["alternatives"] == [["fr1:a\nfr1:b", "fr2:a\nfr2:b"], ["fr1:c", "fr2:c"]]
    assert models.kinds[0].search.beam == models.kinds[0].search.n_best == 3


def test_languages_and_health(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    languages = client.get("/languages").json()
    assert {one["code"]: (one["name"], one["targets"]) for one in languages} == {
        "en": ("English", ["de", "en", "fr"]),
        "fr": ("French", ["en", "fr"]),
        "de": ("German", ["de", "en"]),
    }


def test_detect_names_the_languages_of_the_server(client: TestClient) -> None:
    found = client.post("/detect", data={"q": "Das Wetter ist heute sehr schön."}).json()
    assert found[0]["language"] == "de" and len(found) == 3
    assert 99 <= sum(one["confidence"] for one in found) <= 101


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "the body of the request is not JSON"),
        (b"\xff", "the body of the request is not JSON"),
        (b"[" * 100_000, "the body of the request is not JSON"),
        (b"[]", "body: Input should be a valid dictionary or instance of TranslateRequest"),
        (b"{}", "q: Field required"),
        (b'{"q": 5, "source": "en", "target": "fr"}', "q: Input should be a valid string"),
        (
            b'{"q": "x", "source": "en", "target": "xx"}',
            f"no model translates en-xx; there are {PAIRS}",
        ),
        (
            b'{"q": "x", "source": "xx", "target": "xx"}',
            f"no model translates xx-xx; there are {PAIRS}",
        ),
        (b'{"q": "x", "source": "auto", "target": "xx"}', "no model translates into xx, but into fr, en, de"),
        (
            b'{"q": "x", "source": "en", "target": "fr", "alternatives": 10}',
            "alternatives: Input should be less",
        ),
        (b'{"q": "x", "source": "en", "target": "fr", "format": "pdf"}', "format: Input should be 'text' or 'html'"),
    ],
)
def test_a_wrong_request_is_explained(client: TestClient, body: bytes, says: str) -> None:
    answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and answer.json()["error"].startswith(says)


def test_a_list_is_read_up_to_the_first_item_that_is_no_text() -> None:
    """An error for each item of a long list would hold up all other requests."""
    with pytest.raises(ValidationError) as error:
        TranslateRequest.model_validate({"q": ["one", *[1] * 1000], "source": "en", "target": "fr"})
    assert [one["loc"] for one in error.value.errors()] == [("q", "str"), ("q", "list[str]", 1)]


def test_lone_surrogates_are_replaced(client: TestClient) -> None:
    body = '{"q": "a \\ud800 b", "source": "en", "target": "fr"}'
    answer = client.post("/translate", content=body, headers={"Content-Type": "Application/JSON; charset=utf-8"})
    assert answer.json() == {"translatedText": "fr:a \ufffd b"}
    body = body.replace('"en"', '"\\udfff"')
    answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.json() == {"error": f"no model translates \ufffd-fr; there are {PAIRS}"}


def test_requests_over_the_limits_are_refused(models: Echo) -> None:
    with client_of(models, char_limit=10) as client:
        assert ask(client, ["12345", "67890"]).status_code == 200
        answer = ask(client, ["12345", "678901"])
        assert answer.status_code == 400
        assert answer.json() == {"error": "the text has 11 characters; the server accepts 10"}
        answer = ask(client, "x" * 11_000)
        assert answer.status_code == 413 and "bytes" in answer.json()["error"]
        assert ask(client, [""] * 257).json() == {"error": "q has 257 texts; the server accepts 256 at once"}
        # A text within the limit passes however it is escaped.
        assert client.post("/translate", data={"q": "😀" * 10, "source": "en", "target": "fr"}).status_code == 200
        assert ask(client, "😀" * 10).status_code == 200


def test_a_full_queue_is_429_and_a_late_answer_504(models: Echo) -> None:
    models.may_go_on.clear()
    with client_of(models, max_waiting=2, timeout=4.0) as client, ThreadPoolExecutor(3) as pool:
        first = pool.submit(ask, client, "first")
        eventually(lambda: models.kinds)
        waiting = [pool.submit(ask, client, f"{i}") for i in range(2)]
        eventually(lambda: b"tapis_waiting_requests 2.0" in client.get("/metrics").content)
        refused = ask(client, "too many")
        assert refused.status_code == 429 and int(refused.headers["Retry-After"]) >= 1
        late = [first.result(), *(answer.result() for answer in waiting)]
        assert [answer.status_code for answer in late] == [504] * 3
        assert late[0].json() == {"error": "the translation took more than 4 s"}
        models.may_go_on.set()
        assert ask(client, "again").json() == {"translatedText": "fr:again"}
    assert len(models.kinds) <= 3  # those that nobody waits for any more are not translated, or not to their end


@pytest.fixture
def takes_apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], bool]], list[str]]]:
    """Makes texts give their lines only once a function allows it; returns the list of those that were begun."""
    ended = threading.Event()

    def install(may_go_on: Callable[[], bool]) -> list[str]:
        begun: list[str] = []
        lines = Document.lines

        def slow(document: Document[Any]) -> list[str]:
            if len(document.content) > LONG_TEXT:
                begin = document.content[:2]
                begun.append(begin if isinstance(begin, str) else begin.decode())
                while not (may_go_on() or ended.is_set()):
                    time.sleep(0.01)
            return lines(document)

        monkeypatch.setattr("tapis.serving.api.Document.lines", slow)
        return begun

    yield install
    ended.set()


def has_waiting(client: TestClient, n: int) -> bool:
    return f"tapis_waiting_requests {n:.1f}" in client.get("/metrics").text


def test_long_documents_are_taken_apart_in_a_fair_queue_and_hold_up_no_short_ones(
    models: Echo, takes_apart: Callable[[Callable[[], bool]], list[str]]
) -> None:
    may_go_on = threading.Event()
    begun = takes_apart(may_go_on.is_set)
    with client_of(models, ApiKeys(["greedy", "modest"])) as client, ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask, client, "g0" * 1500, format="html", api_key="greedy")
        eventually(lambda: begun)
        rest = [pool.submit(translated_file, client, "a.txt", b"g1" * 1500, api_key="greedy") for _ in range(4)]
        eventually(lambda: has_waiting(client, 4))
        assert ask(client, "<p>x</p>", format="html", api_key="modest").json() == {"translatedText": "<p>fr:x</p>"}
        assert translated_file(client, "a.txt", b"x", api_key="modest").status_code == 200
        modest = pool.submit(ask, client, "m0" * 1500, api_key="modest")
        eventually(lambda: has_waiting(client, 5))
        may_go_on.set()
        assert modest.result().json() == {"translatedText": f"fr:{'m0' * 1500}"}
        assert all(answer.result().status_code == 200 for answer in (first, *rest))
    assert begun == ["g0", "m0", "g1", "g1", "g1", "g1"]


def test_a_document_with_many_alternatives_is_put_together_in_the_queue(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    joined = Document.joined

    def noting(document: Document[str], translations: Sequence[str]) -> str:
        threads.append(threading.current_thread().name)
        return joined(document, translations)

    monkeypatch.setattr(Document, "joined", noting)
    text = "<p>Hello.</p>" * (LONG_TEXT // 40)
    for n in (0, 3):
        assert ask(client, text, format="html", alternatives=n).status_code == 200
    assert [name == "batches" for name in threads] == [False] + 4 * [True]


def test_a_long_document_that_nobody_waits_for_any_more_is_not_taken_apart(
    models: Echo, takes_apart: Callable[[Callable[[], bool]], list[str]]
) -> None:
    may_go_on = threading.Event()
    begun = takes_apart(may_go_on.is_set)
    with client_of(models, timeout=1.0) as client, ThreadPoolExecutor(3) as pool:
        late = [pool.submit(ask, client, f"{i}:" * 1500) for i in range(3)]
        assert [answer.result().status_code for answer in late] == [504] * 3
        assert late[0].result().json() == {"error": "the translation took more than 1 s"}
        may_go_on.set()
        assert ask(client, "3:" * 1500).status_code == 200
    assert len(begun) == 2 and begun[1] == "3:"


def test_the_request_of_a_client_that_has_gone_ends(models: Echo) -> None:
    app = application(ServeOptions(no_page=True), models, ApiKeys())
    models.may_go_on.clear()
    body = json.dumps({"q": "x", "source": "en", "target": "fr"}).encode()
    sent: list[Message] = []

    async def go() -> None:
        has_body = True

        async def receive() -> Message:
            nonlocal has_body
            if has_body:
                has_body = False
                return {"type": "http.request", "body": body, "more_body": False}
            while not models.kinds:
                await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/translate", "query_string": b"", "headers": headers}
        await app(scope, receive, send)

    start = time.monotonic()
    asyncio.run(go())
    assert sent[0]["status"] == 400 and b"the client has gone" in sent[1]["body"]
    assert time.monotonic() - start < 20


def test_the_beam_and_the_batches_are_those_of_the_options(models: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    with client_of(models, beam=4) as client:
        ask(client)
        ask(client, alternatives=1)
    assert [(kind.search.beam, kind.search.n_best) for kind in models.kinds] == [(4, 1), (4, 2)]

    passed: list[tuple[int, ...]] = []

    class NotedLanes(Lanes[Kind, Answer]):
        def __init__(self, translator_of: Any, *limits: int) -> None:
            passed.append(limits)
            super().__init__(translator_of, *limits)

    monkeypatch.setattr("tapis.commands.serve.Lanes", NotedLanes)
    client_of(models, max_waiting=3, max_lines=7)
    assert passed == [(3, 7)]


@pytest.mark.parametrize("text", ["damaged", "refused", "bug"])
def test_an_error_of_the_server_names_no_files(
    client: TestClient, capfd: pytest.CaptureFixture[str], text: str
) -> None:
    answer = ask(client, text)
    assert (answer.status_code, answer.json()) == (500, {"error": "the server failed; its log says why"})
    assert ask(client).status_code == 200
    if text != "bug":
        assert f"/translate: {SECRET}" in capfd.readouterr().err


def test_only_requests_with_a_key_are_answered(models: Echo, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("\ufefffirst-key\n# für zwei Clients\n\nsecond key\n", encoding="utf-8")
    with client_of(models, ApiKeys.read(file)) as client:
        for key in ("first-key", "second key"):
            assert ask(client, api_key=key).status_code == 200
        for key in ("", "first", "first-key ", "# für zwei Clients", "\ud800"):
            body = json.dumps({"q": "x", "source": "en", "target": "fr", "api_key": key})
            answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()) == (403, {"error": "a valid api_key is needed"})
        assert ask(client).status_code == client.post("/detect", data={"q": "x"}).status_code == 403
        assert client.get("/health").status_code == 200
    file.write_text("# none\n")
    with pytest.raises(TapisError, match="has no keys: write one per line"):
        ApiKeys.read(file)
    for key in ("ключ", "zweiter Schlüssel", "a\tb"):  # the header of /download_file could not have them
        file.write_text(f"first-key\n{key}\n", encoding="utf-8")
        with pytest.raises(TapisError, match="keys are printable ASCII"):
            ApiKeys.read(file)


def test_a_key_has_one_spelling() -> None:
    keys = ApiKeys(["what?"])
    assert keys.allow("what?", "here") and not keys.allow("what\ud800", "here")


def test_wrong_keys_are_limited(models: Echo) -> None:
    with client_of(models, ApiKeys(["right"])) as client:
        for i in range(WRONG_KEYS):
            assert ask(client, api_key=f"wrong {i}").status_code == 403
        answer = ask(client, api_key="right")
        assert answer.status_code == 429 and answer.headers["Retry-After"] == "60"


def test_who_guesses_keys_locks_out_nobody_who_has_one_and_a_right_key_forgives_nothing() -> None:
    keys = ApiKeys(["right", "other"])
    assert keys.allow("right", "here")
    for i in range(WRONG_KEYS):
        assert not keys.allow(f"wrong {i}", "here") and keys.allow("right", "here")
    with pytest.raises(TooManyKeysError):
        keys.allow("another wrong one", "here")
    with pytest.raises(TooManyKeysError):
        keys.allow("other", "here")
    assert keys.allow("right", "here") and keys.allow("other", "there")


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("2001:db8::9", "2001:db8::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("unknown", "unknown"),
    ],
)
def test_all_addresses_of_a_network_of_ipv6_are_one_client(address: str, network: str) -> None:
    assert network_of(Request({"type": "http", "client": (address, 0)})) == network


def test_a_proxy_of_ipv4_is_trusted_also_where_the_server_listens_on_ipv6() -> None:
    clients: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        clients.append(scope["client"])

    headers = [(b"x-forwarded-for", b"203.0.113.1")]
    wrapped = behind_proxies(app, ["192.0.2.7"])
    for address in ("192.0.2.7", "::ffff:192.0.2.7", "::ffff:192.0.2.8", "2001:db8::1"):
        scope = {"type": "http", "client": (address, 9), "headers": headers}
        asyncio.run(wrapped(scope, None, None))  # type: ignore[arg-type]
    asyncio.run(wrapped({"type": "http", "client": None, "headers": headers}, None, None))  # type: ignore[arg-type]
    assert clients == [("203.0.113.1", 0), ("203.0.113.1", 0), ("192.0.2.8", 9), ("2001:db8::1", 9), None]


@pytest.mark.parametrize(
    ("header", "address"),
    [
        ("203.0.113.1:5678", "203.0.113.1"),
        ("[2001:db8::1]:5678", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("198.51.100.1:7, 203.0.113.1:5678,192.0.2.7:80", "203.0.113.1"),  # the last one is a proxy, too
        ("203.0.113.1, ::ffff:192.0.2.7", "203.0.113.1"),
        ("unknown", "unknown"),
    ],
)
def test_a_client_behind_a_proxy_is_one_whatever_its_port(header: str, address: str) -> None:
    clients: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        clients.append(scope["client"])

    scope = {"type": "http", "client": ("192.0.2.7", 9), "headers": [(b"x-forwarded-for", header.encode())]}
    asyncio.run(behind_proxies(app, ["192.0.2.7"])(scope, None, None))  # type: ignore[arg-type]
    assert clients == [(address, 0)]


def test_the_address_of_a_file_is_https_if_the_proxy_says_so(models: Echo) -> None:
    app = behind_proxies(application(ServeOptions(no_page=True), models, ApiKeys()), ["testclient"])
    client = TestClient(app, base_url="http://localhost", headers={"X-Forwarded-For": "203.0.113.1"})
    for scheme in ("http", "https"):
        assert translated_file(client, "a.txt", b"A cat.").json()["translatedFileUrl"].startswith(f"{scheme}://")
        client.headers["X-Forwarded-Proto"] = "https"


def test_other_sites_may_ask_only_where_they_are_named(models: Echo) -> None:
    origin = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    for cors, allowed in (
        ((), None),
        (("https://example.org",), "https://example.org"),
        (("https://a.org",), None),
        (("*",), "*"),
    ):
        with client_of(models, cors=cors) as client:
            assert client.options("/translate", headers=origin).headers.get("Access-Control-Allow-Origin") == allowed
            answer = client.get("/languages", headers={"Origin": "https://example.org"})
            assert answer.headers.get("Access-Control-Allow-Origin") == allowed
            assert answer.status_code == (200 if allowed else 403)
            exposed = "Retry-After" if allowed else None
            assert answer.headers.get("Access-Control-Expose-Headers") == exposed


def test_behind_a_proxy_the_page_is_answered_if_its_host_is_passed_on(models: Echo) -> None:
    with client_of(models, allow_host=("example.org",)) as client:
        client.headers["Origin"] = "https://example.org:8443"
        for host, status in (("example.org:8443", 200), ("127.0.0.1:7860", 403)):
            client.headers["Host"] = host
            answer = ask(client)
            assert answer.status_code == status
        assert "a reverse proxy must pass on the header Host" in answer.json()["error"]


def test_a_site_is_named_as_browsers_do() -> None:
    for site in ("*", "https://example.org", "http://localhost:8000", "http://[::1]:8000"):
        ServeOptions(cors=(site,))
    for site in ("example.org", "https://example.org/", "https://exa mple", "https://example.org?x", "https://a@b", ""):
        with pytest.raises(ConfigError, match="name a site as browsers do"):
            ServeOptions(cors=(site,))


def test_a_server_on_all_networks_must_be_named(models: Echo) -> None:
    for host in ("0.0.0.0", "0", "0x0", "::", "::0", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0", ""):
        with pytest.raises(ConfigError, match="--allow-host"):
            ServeOptions(host=host)
    for host in ("127.0.0.1", "::1", "localhost", "a" * 300):
        ServeOptions(host=host)
    with pytest.raises(ConfigError, match="without http"):
        ServeOptions(allow_host=("http://example.org",))
    with client_of(models, host="0.0.0.0", allow_host=("translate.example.org",)) as client:
        for host, status in (("translate.example.org:80", 200), ("localhost", 200), ("0.0.0.0", 421), ("a.org", 421)):
            assert client.get("/health", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("host", "names", "expected"),
    [
        ("127.0.0.1", (), "http://127.0.0.1:7860"),
        ("::1", ("example.org",), "http://[::1]:7860"),
        ("0.0.0.0", ("example.org", "192.0.2.7"), "http://example.org:7860"),
        ("::", ("2001:db8::1",), "http://[2001:db8::1]:7860"),
        ("2001:DB8:0::0:1", (), "http://[2001:db8::1]:7860"),
        ("::", ("[2001:0db8::0001]",), "http://[2001:db8::1]:7860"),
    ],
)
def test_the_address_that_is_printed_is_answered(
    models: Echo, host: str, names: tuple[str, ...], expected: str
) -> None:
    assert url_of(ServeOptions(host=host, allow_host=names)) == expected
    with client_of(models, host=host, allow_host=names) as client:
        assert client.get("/health", headers={"Host": expected.removeprefix("http://")}).status_code == 200


def test_a_name_may_have_an_underscore(models: Echo) -> None:
    """As those that containers give each other."""
    with client_of(models, allow_host=("my_tapis",)) as client:
        assert client.get("/health", headers={"Host": "my_tapis:7860"}).status_code == 200


def test_an_address_of_ipv6_is_answered_in_any_form(models: Echo) -> None:
    with client_of(models, host="::", allow_host=("2001:db8::1",)) as client:
        for host, status in (("[2001:0DB8:0::1]:7860", 200), ("[2001:db8::2]", 421), ("[2001]", 421)):
            assert client.get("/health", headers={"Host": host}).status_code == status


def test_fields_may_be_in_the_url_and_empty_ones_are_absent(client: TestClient) -> None:
    answer = client.post("/translate", params={"q": "Hello.", "source": "en", "target": "fr", "alternatives": ""})
    assert answer.json() == {"translatedText": "fr:Hello."}
    answer = client.post("/translate", params={"target": "de"}, data={"q": "Hello.", "source": "en", "format": ""})
    assert answer.json() == {"translatedText": "de:Hello."}


def test_what_is_not_offered_is_explained(client: TestClient) -> None:
    for method in ("GET", "PUT", "HEAD"):
        answer = client.request(method, "/translate")
        assert answer.status_code == 405 and (method == "HEAD" or answer.json() == {"error": "Method Not Allowed"})
    assert client.get("/nothing").json() == {"error": "Not Found"}
    assert client.head("/health").status_code == 200
    answer = client.post("/translate", content=b'{"q": "x"}')
    assert answer.status_code == 400 and "Content-Type: application/json" in answer.json()["error"]
    answer = client.post("/translate", data={f"field{i}": "x" for i in range(5000)})
    assert answer.status_code == 400 and answer.json() == {"error": "the form has more than 1,000 fields"}
    answer = client.post("/suggest", data={"q": "x", "s": "y", "source": "en", "target": "fr"})
    assert answer.status_code == 403 and "disabled" in answer.json()["error"]


def test_settings_and_spec(client: TestClient) -> None:
    settings = client.get("/frontend/settings").json()
    assert settings["charLimit"] == 10_000 and settings["supportedFilesFormat"] == list(SUFFIXES)
    assert settings["keyRequired"] is False and settings["suggestions"] is False
    assert "/translate_file" in client.get("/spec").json()["paths"]


def test_detect_names_a_language_that_no_model_has(client: TestClient) -> None:
    for text, language in (("El gato está sentado en la alfombra.", "es"), ("我喜欢猫和狗,它们很可爱。", "zh")):
        assert client.post("/detect", data={"q": text}).json() == [{"language": language, "confidence": 100}]


def translated_file(client: TestClient, name: str, content: bytes, **fields: str) -> Any:
    return client.post(
        "/translate_file", files={"file": (name, content)}, data={"source": "en", "target": "fr", **fields}
    )


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.txt", "One.\n\nTwo.", "fr:One.\n\nfr:Two."),
        ("../../a b.html", "<p>One <b>two</b>.</p>", "<p>fr:One <b>two</b>.</p>"),
        ("my letter é?.txt", "One.", "fr:One."),
        ("C:\\a.MD", "# One\n\n`code`\n", "# fr:One\n\n`code`\n"),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\nOne.\n", "1\n00:00:01,000 --> 00:00:02,000\nfr:One.\n"),
    ],
)
def test_files_are_translated(client: TestClient, name: str, content: str, expected: str) -> None:
    url = translated_file(client, name, content.encode()).json()["translatedFileUrl"]
    assert re.fullmatch(r"http://localhost/download_file/[\w%.-]{40,}", url, re.ASCII) and ".." not in url
    answer = client.get(url)
    assert answer.text == expected and answer.headers["Content-Disposition"].startswith("attachment; filename")
    assert answer.headers["Content-Type"] == "application/octet-stream"


def test_a_stop_that_a_heading_of_a_file_has_not_is_left_out() -> None:
    document = Upload("a.md", b'# Headings\n\n![The cat](cat.png "The dog")\n').document()
    lines = document.lines()
    assert joined_file(document, lines, [Translation(f"{line}.", -1.0) for line in lines]) == document.content


def test_a_file_that_cannot_be_translated_is_explained(client: TestClient) -> None:
    for name, content, says in (
        ("a.exe", b"x", "the server does not translate .exe files; it takes .txt, .html"),
        ("a.DOCX", b"PK" * 11_000, "the server does not translate .docx files; it takes .txt, .html"),
        ("a", b"x" * 11_000, "the server does not translate files without an ending; it takes .txt, .html"),
        ("", b"x", ""),
        ("a.txt", b"\xff", "not UTF-8"),
        ("a.srt", b"x", "no line has times"),
        ("a.txt", b"x" * 11_000, "11,000 characters"),
    ):
        answer = translated_file(client, name, content)
        assert answer.status_code == 400 and says in answer.json()["error"]
    answer = client.post("/translate_file", data={"file": "/etc/hostname", "source": "en", "target": "fr"})
    assert answer.status_code == 400 and answer.json()["error"].startswith("file: send a file")
    assert client.get("/download_file/unknown").status_code == 404


def test_a_translated_file_is_only_for_the_key_that_made_it(models: Echo) -> None:
    with client_of(models, ApiKeys(["mine", "yours"])) as client:
        assert translated_file(client, "a.txt", b"One.").status_code == 403
        url = translated_file(client, "a.txt", b"One.", api_key="mine").json()["translatedFileUrl"]
        assert client.get(url).status_code == 403
        for key, status in (("yours", 404), ("mine", 200)):
            assert client.get(url, headers={"Authorization": f"Bearer {key}"}).status_code == status
            assert client.get(url, params={"api_key": key}).status_code == status


def test_translated_files_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = Downloads()
    first = downloads.add("a.txt", b"x", "")
    others = [downloads.add("b.txt", b"x", "") for _ in range(MAX_FILES)]
    assert downloads.get(first) is None and downloads.get(others[0])
    monkeypatch.setattr("tapis.serving.files.KEPT_SECONDS", -1.0)
    assert downloads.get(others[0]) is None


def test_a_client_with_many_files_makes_room_with_its_own() -> None:
    downloads = Downloads()
    mine = downloads.add("a.txt", b"x", "me")
    others = [downloads.add("b.txt", b"x", "other") for _ in range(2 * MAX_FILES)]
    large = [downloads.add("c.txt", b"x" * (MAX_BYTES // 2), "third") for _ in range(3)]
    assert downloads.get(mine) and not downloads.get(others[0]) and downloads.get(others[-1])
    assert [downloads.get(one) is not None for one in large] == [False, False, True]


def test_too_much_work_is_refused_in_words(client: TestClient, models: Echo) -> None:
    page = "\n".join(["<p>The <b>cat</b> is <i>sitting</i> on the mat.</p>"] * 190)
    answer = ask(client, page, format="html", alternatives=9)
    assert answer.status_code == 400 and "fewer alternatives" in answer.json()["error"] and not models.kinds
    assert ask(client, page, format="html", alternatives=3).status_code == 200
    lines = {"q": "a\n" * 4990, "source": "en", "target": "fr"}
    says = "this text is more work than the server accepts at once: send about 91 % of it at a time"
    assert client.post("/translate", json=lines).json() == {"error": says}
    assert client.post("/page/translate", json=lines).json() == {"error": says.replace("91", "18")}
    assert client.post("/translate", json={**lines, "q": "a\n" * (91 * 4990 // 100)}).status_code == 200
    assert ask(client, "x" * 9_900).status_code == 200


def test_the_work_of_a_request_is_limited_as_the_flag_says(models: Echo) -> None:
    with client_of(models, work_limit=200) as client:
        assert ask(client, "x" * 100).status_code == 200
        answer = ask(client, "x" * 300)
    assert answer.status_code == 400 and "is more work than the server accepts at once" in answer.json()["error"]


def test_the_page_can_be_left_out(models: Echo) -> None:
    for no_page, status in ((False, 200), (True, 404)):
        app = application(ServeOptions(no_page=no_page), models, ApiKeys())
        with TestClient(app, base_url="http://localhost") as client:
            assert [client.get(path).status_code for path in ("/", "/page.js", "/health")] == [status, status, 200]


HOSTILE = ("/etc/hostname", "file:///etc/hostname", "..%2f..%2fetc%2fhostname", "/dev/zero", "http://127.0.0.1:1/")


def test_the_page_knows_the_targets_before_it_identifies(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each set of languages would otherwise have tables of its own, for ever."""
    monkeypatch.setattr("tapis.serving.api.foreign_language", lambda *_: pytest.fail("it was identified"))
    for target in ("es", "q1", "auto", ""):
        answer = client.post("/page/translate", json={"q": "hi", "source": "auto", "target": target})
        assert answer.status_code == 400 and "error" in answer.json()


def test_sets_of_languages_share_their_tables() -> None:
    one, other = language_identifier("en", "fr"), language_identifier("de", "fr")
    assert one.tk_nextmove is other.tk_nextmove and one.labels == ["en", "fr"] and other.labels == ["de", "fr"]
    assert one.classify("The cat sits on the mat.")[0] == "en"
    assert len(language_identifier().labels) > 50


def test_a_failure_before_the_queue_has_headers_and_a_log_without_texts(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    message = "a text of the request"

    def fail(*_: object) -> None:
        raise ValueError(message)

    monkeypatch.setattr("tapis.serving.api.Document.lines", fail)
    answer = ask(client)
    assert (answer.status_code, answer.json()) == (500, {"error": "the server failed; its log says why"})
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    log = capsys.readouterr().err
    assert "/translate: ValueError" in log and "in fail" in log and message not in log


def test_a_number_of_too_many_digits_is_no_character(client: TestClient) -> None:
    page = "&#" + "1" * 5000 + "; hello, this is a text in English"
    assert ask(client, page, "auto", format="html").status_code == 200
    upload = {"file": ("a.html", page.encode())}
    answer = client.post("/translate_file", files=upload, data={"source": "auto", "target": "fr"})
    assert answer.status_code == 200


def test_damaged_forms_are_explained(client: TestClient) -> None:
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = client.post("/translate_file", content=b"nonsense", headers=form)
    assert answer.status_code == 400 and answer.json()["error"].startswith("the form cannot be read: ")
    for charset, status in (("punycode", 400), ("x" * 9000, 400), ("UTF-8", 200)):
        field = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nHello\r\n--x--\r\n'
        answer = client.post(
            "/detect", content=field, headers={"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}
        )
        assert answer.status_code == status
        assert status == 200 or answer.json()["error"] == "the form cannot be read: its charset must be UTF-8"
    two = [("file", ("a.txt", b"x")), ("file", ("b.txt", b"x"))]
    answer = client.post("/translate_file", files=two, data={"source": "en", "target": "fr"})
    assert answer.status_code == 400 and answer.json()["error"].startswith("the form cannot be read: ")


@pytest.mark.parametrize(
    ("lines", "n_tokens", "search", "expected"),
    [
        (["a" * 100], 0, Search(), 121),
        (["a" * 100], 90, Search(), 291),
        (["a" * 100], 0, Search(5, 5), 605),
        ([""] * 1000, 0, Search(10, 10), 1000),
    ],
)
def test_rare_characters_blank_lines_and_further_answers_are_work(
    lines: list[str], n_tokens: int, search: Search, expected: float
) -> None:
    assert work_of(lines, search, is_marked_up=False, n_tokens=n_tokens) == expected


def test_sentences_with_terms_are_work(models: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for a translation with the terms of a glossary takes many times as long."""
    models.glossaries["en", "fr"] = Glossary((Term("cat", "matou"), Term("dog", "toutou")))
    works: list[float] = []
    submit = Lanes.submit

    def noting(self: Lanes[Kind, Answer], kind: Kind, lines: Sequence[str], client: str = "", work: float = 0.0) -> Any:
        works.append(work)
        return submit(self, kind, lines, client, work)

    monkeypatch.setattr(Lanes, "submit", noting)
    sentences = ["A mouse sleeps.", "The cat sleeps.", "The cat and the dog."]
    with client_of(models) as client:
        for text in (*sentences, " ".join(sentences)):
            ask(client, text)
            ask(client, text, target="de")
        others = [
            work_of([text], Search(), is_marked_up=False, n_tokens=0) for text in (*sentences, " ".join(sentences))
        ]
        assert works[1::2] == others
        terms = [
            n * work_of([text], Search(5), is_marked_up=False, n_tokens=0)
            for n, text in zip((0, 2, 4), sentences, strict=True)
        ]
        assert works[::2] == pytest.approx(np.add(others, [*terms, sum(terms)]))
        lines = "\n".join(["The cat and the dog are sleeping on the big mat."] * 8)
        ask(client, lines)
        assert works[-1] > QUICK_WORK
        assert ask(client, "\n".join([lines] * 20)).status_code == 200, "a glossary makes no text too long"
        models.configs = {run: replace(config, terms=0.3) for run, config in models.configs.items()}
        ask(client, sentences[1])
        assert works[-1] == others[1], "a model that learned to obey terms needs no second search"


@pytest.mark.parametrize(
    ("body", "parameters"),
    [
        ({"q": "<p " + "a" * 9_900 + ">", "format": "html"}, ""),
        ({"q": "<p " + "a " * 4_900 + ">", "format": "html"}, ""),
        ({"q": "<p a" + " " * 9_000 + "b>", "format": "html"}, ""),
        ({"q": "\n" * 9_999}, ""),
        ({"q": "x"}, "&".join(f"a{i}" for i in range(990))),
        ({"q": "x"}, "&".join(f"a{i}" for i in range(5_000))),
    ],
)
def test_no_request_is_read_in_quadratic_time(client: TestClient, body: dict[str, Any], parameters: str) -> None:
    seconds = []
    for _ in range(3):  # other threads of the tests may be at work
        start = time.process_time()
        answer = client.post(f"/translate?{parameters}", json={"source": "en", "target": "fr", **body})
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.5
    assert answer.status_code == 200 or "more than 1,000 fields" in answer.json()["error"]


def test_no_input_is_opened_or_connected_to(models: Echo) -> None:
    """Every route with every field, while Python reports what is opened."""
    opened: list[str] = []
    is_watching = True

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if is_watching and event in ("open", "socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.listdir"):
            opened.append(f"{event} {args[:2]}")

    sys.addaudithook(watch)
    with client_of(models) as client:
        routes = client.app.routes  # type: ignore[attr-defined]
        assert all(isinstance(route, Route) for route in routes), "a folder would be opened by what a path says"
        assert {"/translate", "/translate_file", "/download_file/{name}", "/page/translate"} <= {r.path for r in routes}
        fields = ["q", "source", "target", "format", "alternatives", "api_key", "file", "name", "data", "path", "url"]
        for text in HOSTILE:
            value = {"path": text, "url": text, "meta": {"_type": "gradio.FileData"}}
            for route in routes:
                path = route.path.replace("{name}", text)
                for method in route.methods or ():
                    client.request(method, path, params=dict.fromkeys(fields, text))
                    client.request(method, path, data=dict.fromkeys(fields, text))
                    client.request(method, path, json=dict.fromkeys(fields, value))
                    client.request(method, path, json=dict.fromkeys(fields, text))
                    client.request(method, path, files={"file": (text, text.encode())}, data={"target": text})
                    client.request(method, path, headers={"X-Forwarded-For": text, "Referer": text, "Cookie": text})
    is_watching = False
    assert opened  # the hook works: Python opens its own modules
    assert not [one for one in opened if any(text.strip("/") in one for text in (*HOSTILE, "etc/hostname", "dev/zero"))]


def test_a_body_that_does_not_arrive_is_408() -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        await asyncio.sleep(20)
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    async def reads(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()

    scope = {"type": "http", "headers": [], "path": "/"}
    asyncio.run(BodyLimit(reads, max_bytes=10, max_seconds=0.05)(scope, receive, send))
    assert sent[0]["status"] == 408 and b"did not arrive in 0.05 s" in sent[1]["body"]


def test_a_chunked_body_is_measured_too(models: Echo) -> None:
    with client_of(models, char_limit=10) as client:
        answer = client.post(
            "/translate", content=iter([b"x" * 9000] * 3), headers={"Content-Type": "application/json"}
        )
        assert answer.status_code == 413 and answer.json()["error"] == "the request has more than 10,120 bytes"


def test_long_pages_take_time_in_proportion(client: TestClient) -> None:
    page = f"<p>a{' ' * 9_000}b</p>"
    assert ask(client, page, format="html").json()["translatedText"] == "<p>fr:a b</p>"
    assert takes_less_than(2, lambda: ask(client, page, format="html"))


def test_metrics_count_requests_and_batches(client: TestClient) -> None:
    ask(client, ["four", "more"])
    ask(client, target="xx")
    client.get("/not/counted")
    text = client.get("/metrics").text
    for line in (
        'tapis_requests_total{path="/translate",status="200"} 1.0',
        'tapis_requests_total{path="/translate",status="400"} 1.0',
        'tapis_request_seconds_count{path="/translate"} 2.0',
        "tapis_batch_lines_sum 2.0",
        "tapis_characters_total 8.0",
        "tapis_waiting_requests 0.0",
    ):
        assert line in text.splitlines()
    assert "/not/counted" not in text


def test_many_clients_get_their_own_answers(client: TestClient, models: Echo) -> None:
    texts = [f"Sentence {i}." for i in range(300)]
    with ThreadPoolExecutor(30) as pool:
        answers = list(pool.map(lambda text: ask(client, text).json()["translatedText"], texts))
    assert answers == [f"fr:{text}" for text in texts]
    assert len(models.kinds) < len(texts)  # some were translated together
