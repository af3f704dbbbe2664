"""The queue: requests that wait are answered together, each with its own answer, and a bound keeps them few."""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest

from tapis.serving.batches import AbandonedError, Batches, Check, Lanes, QueueFullError, TranslateBatch
from tapis.system.cli import ServeOptions

MAX_LINES = ServeOptions().max_lines


class Slow:
    """A translation that waits until it may go on, and notes its batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[str]]] = []
        self.started = threading.Event()
        self.may_go_on = threading.Event()

    def __call__(self, kind: str, lines: list[str], check: Check) -> list[str]:
        self.batches.append((kind, lines))
        self.started.set()
        assert self.may_go_on.wait(20)
        if "bad" in lines:
            raise ValueError("bad")
        return [f"{kind} {line}" for line in lines]


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def batches(slow: Slow) -> Iterator[Batches[str, str]]:
    with closing(slow_batches(slow)) as batches:
        yield batches
        slow.may_go_on.set()


def slow_batches(slow: Slow) -> Batches[str, str]:
    def translator_of(kind: str) -> TranslateBatch[str]:
        return partial(slow, kind)

    return Batches(translator_of, max_waiting=5, max_lines=4)


def begin(batches: Batches[str, str], slow: Slow) -> Future[list[str]]:
    """Occupies the thread with a first request, so that what follows waits."""
    first = batches.submit("fr", ["first"])
    assert slow.started.wait(20)
    return first


def test_what_waits_is_translated_together_by_kind_and_in_order(batches: Batches[str, str], slow: Slow) -> None:
    begin(batches, slow)
    kinds = ["fr", "de", "fr", "de"]
    answers = [batches.submit(kind, [f"{i}a", f"{i}b"]) for i, kind in enumerate(kinds)]
    assert batches.n_waiting == 4
    slow.may_go_on.set()
    results = [answer.result(20) for answer in answers]
    assert results == [[f"{kind} {i}a", f"{kind} {i}b"] for i, kind in enumerate(kinds)]
    assert slow.batches[1:] == [("fr", ["0a", "0b", "2a", "2b"]), ("de", ["1a", "1b", "3a", "3b"])]


def test_a_batch_is_no_longer_than_its_limit_unless_one_request_is(batches: Batches[str, str], slow: Slow) -> None:
    begin(batches, slow)
    answers = [batches.submit("fr", [f"{i}"] * n) for i, n in enumerate((3, 2, 9, 1))]
    slow.may_go_on.set()
    assert [len(answer.result(20)) for answer in answers] == [3, 2, 9, 1]
    assert [len(lines) for _, lines in slow.batches] == [1, 4, 2, 9]


def test_a_full_queue_says_when_to_come_back(batches: Batches[str, str], slow: Slow) -> None:
    begin(batches, slow)
    answers = [batches.submit("fr", ["x" * 100]) for _ in range(5)]
    for seconds_per_work, seconds in ((0.0, 1), (0.021, 11), (100.0, 60)):
        batches.seconds_per_work = seconds_per_work
        with pytest.raises(QueueFullError, match=f"try again in {seconds} s") as error:
            batches.submit("fr", ["more"])
        assert error.value.retry_after == seconds
    slow.may_go_on.set()
    assert all(answer.result(20) for answer in answers)
    assert batches.submit("fr", ["more"]).result(20) == ["fr more"]


def test_a_cancelled_request_is_not_translated(batches: Batches[str, str], slow: Slow) -> None:
    begin(batches, slow)
    first, second = batches.submit("fr", ["no"]), batches.submit("fr", ["yes"])
    assert first.cancel()
    slow.may_go_on.set()
    assert second.result(20) == ["fr yes"] and slow.batches[1:] == [("fr", ["yes"])]


def test_a_cancelled_request_makes_room_at_once(batches: Batches[str, str], slow: Slow) -> None:
    begin(batches, slow)
    answers = [batches.submit("fr", [f"{i}"]) for i in range(5)]
    assert answers[1].cancel()
    more = batches.submit("fr", ["more"])
    with pytest.raises(QueueFullError):
        batches.submit("fr", ["too many"])
    slow.may_go_on.set()
    assert more.result(20) == ["fr more"] and answers[4].result(20) == ["fr 4"]


def test_a_request_that_fails_fails_alone(batches: Batches[str, str], slow: Slow) -> None:
    begin(batches, slow)
    answers = [batches.submit("fr", [line]) for line in ("good", "bad", "fine")]
    slow.may_go_on.set()
    assert answers[0].result(20) == ["fr good"] and answers[2].result(20) == ["fr fine"]
    with pytest.raises(ValueError, match="bad"):
        answers[1].result(20)


class PanicError(BaseException):
    """A panic of a library in Rust is no Exception either."""


@pytest.mark.parametrize("error", [PanicError, SystemExit])
def test_no_error_ends_the_thread_of_a_queue(error: type[BaseException]) -> None:
    def translator_of(kind: str) -> TranslateBatch[str]:
        if kind == "damaged":
            raise error(kind)
        return translate

    def translate(lines: list[str], check: Check) -> list[str]:
        if "bad" in lines:
            raise error("bad")
        return lines

    with closing(Batches[str, str](translator_of, max_waiting=5, max_lines=4)) as batches:
        for kind, line, message in (("damaged", "x", "damaged"), ("fr", "bad", "bad")):
            with pytest.raises(RuntimeError, match=f"{error.__name__}: {message}"):
                batches.submit(kind, [line]).result(20)
        assert batches.submit("fr", ["good"]).result(20) == ["good"]


def test_closing_answers_what_waits_and_accepts_no_more(slow: Slow) -> None:
    batches = slow_batches(slow)
    begin(batches, slow)
    answer = batches.submit("fr", ["last"])
    slow.may_go_on.set()
    batches.close()
    assert answer.done() and answer.result() == ["fr last"]
    with pytest.raises(QueueFullError):
        batches.submit("fr", ["late"])


def test_one_client_never_waits_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("tapis.serving.batches.time.sleep", waits.append)
    batches: Batches[str, str] = Batches(lambda kind: lambda lines, check: lines, 5, MAX_LINES)
    with closing(batches):
        for i in range(100):
            assert batches.submit("fr", [f"{i}"]).result(20) == [f"{i}"]
    assert not waits


def test_two_clients_are_translated_together() -> None:
    sizes: list[int] = []

    def translated(lines: list[str], check: Check) -> list[str]:
        sizes.append(len(lines))
        time.sleep(0.005)
        return lines

    batches: Batches[str, str] = Batches(lambda kind: translated, 5, MAX_LINES)
    with closing(batches), ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda i: batches.submit("fr", [f"{i}"]).result(20), range(100)))
    assert sum(sizes) == 100 and len(sizes) < 80


def test_a_batch_has_few_characters_unless_one_request_has_many(batches: Batches[str, str], slow: Slow) -> None:
    begin(batches, slow)
    answers = [batches.submit("fr", ["x" * n]) for n in (20_000, 10_000, 5_000, 100_000)]
    slow.may_go_on.set()
    assert all(answer.result(20) for answer in answers)
    assert [[len(line) for line in lines] for _, lines in slow.batches[1:]] == [[20_000, 5_000], [10_000], [100_000]]


def test_a_model_that_cannot_be_loaded_is_tried_once_for_a_batch(slow: Slow) -> None:
    tries: list[str] = []

    def translator_of(kind: str) -> TranslateBatch[str]:
        tries.append(kind)
        if kind == "damaged":
            raise ValueError(kind)
        return partial(slow, kind)

    batches: Batches[str, str] = Batches(translator_of, 5, MAX_LINES)
    with closing(batches):
        begin(batches, slow)
        answers = [batches.submit("damaged", ["x"]) for _ in range(3)]
        slow.may_go_on.set()
        for answer in answers:
            with pytest.raises(ValueError, match="damaged"):
                answer.result(20)
    assert tries == ["fr", "damaged"]


def test_closing_does_not_wait_longer_than_it_should(slow: Slow) -> None:
    batches = slow_batches(slow)
    begin(batches, slow)
    start = time.perf_counter()
    batches.close(timeout=0.1)
    assert time.perf_counter() - start < 5
    slow.may_go_on.set()


def test_of_ten_thousand_requests_none_is_lost_or_answered_with_anothers_text() -> None:
    random_sizes = random.Random(1)
    requests = [(f"k{i % 3}", [f"{i} {j}" for j in range(random_sizes.randrange(4))]) for i in range(10_000)]
    batches: Batches[str, str] = Batches(
        lambda kind: lambda lines, check: [f"{kind} {line}" for line in lines], 10_000, MAX_LINES
    )
    with closing(batches), ThreadPoolExecutor(64) as pool:
        answers = pool.map(lambda request: batches.submit(*request).result(60), requests)
        for (kind, lines), answer in zip(requests, answers, strict=True):
            assert answer == [f"{kind} {line}" for line in lines]


def test_a_request_that_nobody_waits_for_ends_when_it_is_checked() -> None:
    started, ended = threading.Event(), threading.Event()

    def endless(lines: list[str], check: Check) -> list[str]:
        started.set()
        try:
            while True:
                check()
                time.sleep(0.001)
        finally:
            ended.set()

    queue: Batches[str, str] = Batches(lambda kind: endless, 5, MAX_LINES)
    with closing(queue):
        answer = queue.submit("fr", ["x"])
        assert started.wait(20)
        assert not answer.cancel() and ended.wait(5)
        with pytest.raises(AbandonedError):
            answer.result(20)


def test_a_client_that_sends_much_waits_for_itself(batches: Batches[str, str], slow: Slow) -> None:
    begin(batches, slow)
    many = [batches.submit(f"k{i}", ["x"], "greedy", 100) for i in range(4)]
    few = batches.submit("few", ["x"], "modest", 100)
    slow.may_go_on.set()
    assert few.result(20) and all(answer.result(20) for answer in many)
    assert [kind for kind, _ in slow.batches[1:]] == ["k0", "few", "k1", "k2", "k3"]


def test_a_request_that_is_being_translated_counts_for_its_client(slow: Slow) -> None:
    """Also if no other waited when its turn came."""
    batches: Batches[str, str] = Batches(lambda kind: partial(slow, kind), 20, MAX_LINES)
    with closing(batches):
        answers = [batches.submit("A1", ["x"], "A", 10_000)]
        assert slow.started.wait(20)
        for kind, work in (("A2", 10_000), ("B1", 2_000), ("A3", 10_000), ("B2", 2_000)):
            answers.append(batches.submit(kind, ["x"], kind[0], work))
        slow.may_go_on.set()
        assert all(answer.result(20) for answer in answers)
    assert [kind for kind, _ in slow.batches] == ["A1", "B1", "B2", "A2", "A3"]


def test_cancelled_requests_do_not_count_against_their_client(slow: Slow) -> None:
    """As of somebody who types, and whose page asks for each version of the text."""
    batches: Batches[str, str] = Batches(lambda kind: partial(slow, kind), 20, MAX_LINES)
    with closing(batches):
        begin(batches, slow)
        for i in range(10):
            batches.submit(f"typed {i}", ["x"], "typist", 100).cancel()
        last = batches.submit("last", ["x"], "typist", 100)
        many = [batches.submit(f"k{i}", ["x"], "heavy", 100) for i in range(3)]
        slow.may_go_on.set()
        assert last.result(20) and all(answer.result(20) for answer in many)
    assert [kind for kind, _ in slow.batches[1:]] == ["last", "k0", "k1", "k2"]


def test_requests_that_were_taken_early_for_their_kind_count_once(slow: Slow) -> None:
    batches: Batches[str, str] = Batches(lambda kind: partial(slow, kind), 20, MAX_LINES)
    with closing(batches):
        begin(batches, slow)
        kinds = ["a", "b", "a", "c"]
        mixed = [batches.submit(kind, ["x"], "mixed", 100) for kind in kinds]
        others = [batches.submit(f"k{i}", ["x"], "other", 100) for i in range(4)]
        slow.may_go_on.set()
        assert all(answer.result(20) for answer in (*mixed, *others))
    assert [kind for kind, _ in slow.batches[1:]] == ["a", "k0", "k1", "b", "k2", "c", "k3"]


def test_in_a_full_queue_the_client_with_most_makes_room(batches: Batches[str, str], slow: Slow) -> None:
    begin(batches, slow)
    many = [batches.submit("fr", ["x"], "greedy") for _ in range(5)]
    few = batches.submit("fr", ["y"], "modest")
    with pytest.raises(QueueFullError):
        many[-1].result(0)
    with pytest.raises(QueueFullError):
        batches.submit("fr", ["x"], "greedy")
    slow.may_go_on.set()
    assert few.result(20) == ["fr y"] and many[0].result(20) == ["fr x"]


def test_little_requests_do_not_wait_for_large_ones(slow: Slow) -> None:
    lanes: Lanes[str, str] = Lanes(
        lambda kind: lambda lines, check: slow(kind, lines, check) if kind == "long" else lines, 5, MAX_LINES
    )
    with closing(lanes):
        large = lanes.submit("long", ["x"], work=1e6)
        assert slow.started.wait(20)
        assert lanes.submit("quick", ["y"], work=1).result(20) == ["y"] and not large.done()
        slow.may_go_on.set()
        assert large.result(20) == ["long x"]
