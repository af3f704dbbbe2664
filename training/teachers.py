"""Runs that teach a new one (--teacher): at each step, their probabilities are most of the target of each token.

This is word-level knowledge distillation (Kim and Rush 2016, arXiv 1606.07947, section 3.1): a student learns which
tokens its teachers find probable, besides the token of the reference. Teachers must have the student's vocabulary.
If one has another, all of them translate the training part before the first step instead (own_translations.py).
"""

from collections.abc import Collection
from dataclasses import dataclass

import torch

from checkpoint import RunFolder
from config import Config
from model import Transformer
from tapis.config import TapisError
from tapis.ctranslate2 import is_exported
from tapis.system.files import digest_files
from tapis.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Teacher:
    """Another run."""

    config: Config
    model: Transformer
    """On the device of the student, in evaluation mode"""
    digest: str
    """Of its weights"""


def load_teachers(
    config: Config, tokenizer: Tokenizer, device: torch.device, taught_by: Collection[str] | None = None
) -> dict[str, Teacher]:
    """Load the runs that --teacher names, by their names; of a run that is resumed, those that it was taught by.

    A run cannot teach if it has another vocabulary than the student, if it is an export, if it has not learned the tags
    of the student's sources (--terms, --monolingual), or if it cannot be read any more. A new run has either all
    teachers or none, whose translations it learns then.
    """
    teachers = {}
    for name in config.teacher:
        if taught_by is not None and name not in taught_by:
            continue
        if teacher := load_teacher(name, config, tokenizer, device):
            teachers[name] = teacher
        elif taught_by is None:
            return {}
    return teachers


def load_teacher(name: str, config: Config, tokenizer: Tokenizer, device: torch.device) -> Teacher | None:
    """Load a run that --teacher names; None if it cannot teach."""
    try:
        folder = RunFolder.find(name)
        if is_exported(folder.path):
            return None
        their_config, their_tokenizer, model = folder.load_model(device)
    except TapisError:
        return None
    knows_terms = bool(their_config.terms) or not config.terms
    knows_tag = bool(their_config.monolingual) or not config.monolingual
    if their_tokenizer.to_json() != tokenizer.to_json() or not (knows_terms and knows_tag):
        return None
    return Teacher(their_config, model.requires_grad_(False), digest_files([folder.model_file]))
