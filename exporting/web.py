"""A run as one HTML file that translates in a browser; exporting/web_page.py makes the page."""

from pathlib import Path

import torch

from checkpoint import RunFolder
from config import Config
from decoding.standard import check_standard
from exporting.naming import data_name, language_pairs
from exporting.web_page import web_page
from model import Transformer
from tapis.system.files import write_text
from training.metrics import Metrics, load_metrics


def to_web(folder: RunFolder, file: Path, license: str) -> None:
    """Write a run as one HTML file that translates in a browser; exporting/web_page.py describes it."""
    config, tokenizer, model = folder.load_model(torch.device("cpu"))
    check_standard(model, folder.nonstandard_part(), "the page")
    title = f"Translate {language_pairs(config)}"
    facts = web_facts(config, load_metrics(folder), model, license)
    page = web_page(config, folder.load_learned(), tokenizer, model, title, facts)
    write_text(file, page)


def web_facts(config: Config, metrics: Metrics, model: Transformer, license: str) -> dict[str, str]:
    """Return what the page says of its model, by name, besides its languages. What is not known is left out."""
    scored = {"test": metrics.test, "validation": metrics.best}
    facts = {
        "Name": config.name,
        "Data": ", ".join(map(data_name, config.data)),
        "BLEU": ", ".join(f"{scores.bleu:.1f} ({part} part)" for part, scores in scored.items() if scores),
        "Parameters": f"{sum(parameter.numel() for parameter in model.parameters()):,}",
        "Layers": f"{config.n_encoder_layers} encoder, {config.n_decoder_layers} decoder, of {config.d_model} numbers",
        "Licence": license if license != "unknown" else "",
        "Made with": "Tapis",
        "Limits": "Translations can be fluent and wrong. Nothing that you type leaves this page.",
    }
    return {name: value for name, value in facts.items() if value}
