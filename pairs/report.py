"""The report of data: what was read, what the cleaning rules did, and what is left."""

from dataclasses import dataclass, field


@dataclass
class RuleReport:
    """The number of pairs that a rule changed or dropped, and the first of them."""

    pairs: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class DataReport:
    """How the pairs of a source of data were prepared; of several sources, sums over those that have pairs.

    The fields of the second part are known once the pairs are in tokens.
    """

    name: str = ""
    """What `--data` or `--monolingual` named"""
    read: int = 0
    train: int = 0
    valid: int = 0
    test: int = 0
    rules: dict[str, RuleReport] = field(default_factory=dict)
    """Of each rule that applies to the languages"""
    unreadable: RuleReport = field(default_factory=RuleReport)
    """Rows that could not be read, each with its location and its problem"""
    forms: list[str] = field(default_factory=list)
    """How tables are written, as their first rows suggest: encoding, separator, quotes and columns"""
    notes: list[str] = field(default_factory=list)
    """What of the files is skipped; which rules could not be applied, and why; which other files are not used"""
    reversed: bool = False
    """Whether these are the pairs of the source before, in the other direction"""
    monolingual: bool = False
    """Whether these are sentences without translations"""
    sources: list["DataReport"] = field(default_factory=list)
    """Of each source, if there are several"""

    over_long: RuleReport = field(default_factory=RuleReport)
    """Training pairs that exceed `--max-length`"""
    trained_on: int = 0
    """Training pairs that remain"""
    weight: float | None = None
    """How often an epoch has each pair of this source, if there are several"""
    pairs_in_an_epoch: int | None = None
    """Of several sources"""

    def of_each_source(self) -> list["DataReport"]:
        """Return the reports of the sources; of a single source, its own."""
        return self.sources or [self]
