"""The report of data as lines, for the terminal and TensorBoard."""

from collections.abc import Sequence

from pairs.cleaning import RULES, TEXT_RULES
from pairs.report import DataReport, RuleReport
from tapis.system.terminal import in_one_line

LONGEST_EXAMPLE = 48  # characters of a sentence that are shown


def data_lines(data: DataReport) -> list[str]:
    """Return the lines of each source of data."""
    return [line for source in data.of_each_source() for line in source_lines(source)]


def source_lines(data: DataReport) -> list[str]:
    """Return how many pairs were read from a source, what each cleaning rule did, and how many are left."""
    if data.reversed:
        return [f"data      {data.name}: the same pairs, reversed", f"          {sizes_of_parts(data)}"]
    is_text = data.monolingual
    effects: dict[str, str] = dict((TEXT_RULES if is_text else RULES).items())
    what = "lines" if is_text else "pairs"
    lines = [f"{'text' if is_text else 'data':<10}{data.name}: {data.read:,} {what} read"]
    lines += [f"          {form}" for form in data.forms]
    if data.unreadable.pairs:
        lines += unreadable_lines(data)
    for name, rule in data.rules.items():
        if rule.pairs:
            lines += rule_lines(data, name, rule, effects[name])
    idle = [name for name, rule in data.rules.items() if not rule.pairs]
    if idle:
        lines.append(f"{0:>9}          {', '.join(idle)}")
    lines += [f"          {note}" for note in data.notes]
    return [*lines, f"          {f'{data.train:,} sentences' if is_text else sizes_of_parts(data)}"]


def unreadable_lines(data: DataReport) -> list[str]:
    """Return how many rows of a source could not be read, and of the first of them the places and the problems."""
    examples = [f"{'':19}{location} | {in_one_line(problem)}" for location, problem in data.unreadable.examples]
    return [counted(data, data.unreadable, "unreadable, dropped: rows that cannot be read"), *examples]


def rule_lines(data: DataReport, name: str, rule: RuleReport, effect: str) -> list[str]:
    """Return how many pairs of a source a rule changed or dropped, and the first of them."""
    examples = [pair[1:] if data.monolingual else pair for pair in rule.examples]
    return [counted(data, rule, f"{name}, {effect}"), *example_lines(examples)]


def counted(data: DataReport, rule: RuleReport, effect: str) -> str:
    """Return a line with the number of pairs that a rule changed or dropped, and their share of those read."""
    return f"{rule.pairs:>9,} {rule.pairs / max(1, data.read):7.2%}  {effect}"


def example_lines(examples: Sequence[tuple[str, ...]]) -> list[str]:
    """Return a line for each example, with its texts shortened."""
    return [f"{'':19}{' | '.join(in_one_line(text, LONGEST_EXAMPLE) for text in texts)}" for texts in examples]


def sizes_of_parts(data: DataReport) -> str:
    """Return the number of pairs in each part."""
    return f"train {data.train:,}  valid {data.valid:,}  test {data.test:,} pairs"
