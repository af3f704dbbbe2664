"""An edit of model.py: it is trained and translates, the engine and the exports hold themselves to it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT
from torch import Tensor, nn
from torch.nn import functional as F

import model as model_module
from checkpoint import RunFolder, parameters
from config import Config
from decoding.standard import Standard, nonstandard_part, probe
from decoding.torch_searcher import TorchSearcher, searcher_of
from decoding.translator import Translator
from fast.modules import install_fast_modules
from fast.replaced import MODEL, REPLACED, WRITTEN_FOR, digests
from model import Attend, Encoder, FeedForwardBlock, LayerNormalization, Transformer
from tapis.config import ConfigError
from tapis.engine.engine import Engine
from tapis.translator import Translator as PackageTranslator

PAGE = (ROOT / "docs" / "change-the-model.md").read_text(encoding="utf-8")
TEXT = MODEL.read_text(encoding="utf-8")
CPU = torch.device("cpu")
SMALL = ["--d-model", "16", "--n-heads", "2", "--d-ff", "32", "--vocab-size", "300", "--device", "cpu"]

# By the title of its section: the note about fast forms, and what the engine does not compute.
EXAMPLES = {
    "Another activation": ("", "FeedForwardBlock"),
    "Another normalization": ("LayerNormalization", "the weight decoder.blocks.0.residuals.0.norm.bias"),
    "Dropout on attention": ("MaskedAttention", ""),
    "Learned positions": ("", "the weight src_position.table"),
}


def edits(title: str) -> list[tuple[str, str]]:
    """The lines before and after each edit of a section."""
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (text,) = [one for one in section if one.startswith(title)]
    found = []
    for block in re.findall(r"```diff\n(.*?)```", text, re.DOTALL):
        lines = block.splitlines(keepends=True)
        before, after = ("".join(line[1:] or "\n" for line in lines if line[0] in sign) for sign in (" -", " +"))
        found.append((before, after))
    return found


def edited(title: str) -> str:
    """model.py after the edits of a section."""
    text = TEXT
    for before, after in edits(title):
        assert text.count(before) == 1
        text = text.replace(before, after)
    return text


# What is a change


def test_the_fast_forms_were_written_for_the_model_as_it_is() -> None:
    """After a change of model.py: let the fast forms compute the same, and copy the digests into fast/replaced.py."""
    assert digests(TEXT) == WRITTEN_FOR
    assert set(REPLACED) <= set(WRITTEN_FOR)


def test_comments_docstrings_and_blank_lines_are_no_change() -> None:
    changed = re.sub(r'""".*?"""', '"""Otherwise\n\n    said."""', TEXT, flags=re.DOTALL)
    changed = re.sub(r"\n( +return)", r"\n\n        # here\n\1", changed).replace(":\n", ":  # here\n")
    assert digests(changed) == WRITTEN_FOR


@pytest.mark.parametrize("name", REPLACED)
def test_a_changed_word_is_a_change_of_its_part_alone(name: str) -> None:
    """A print in a part that a fast form replaces is one: it would not be seen."""
    part = name.removeprefix("Transformer.")
    start = TEXT.index("class Transformer(") if part != name else 0
    definition = re.compile(rf"^ *(?:class|def) {part}\b.*?:\n(?: *\"\"\".*?\"\"\"\n)?", re.MULTILINE | re.DOTALL)
    found = definition.search(TEXT, start)
    assert found
    indent = " " * (8 if part != name else 4)
    changed = TEXT[: found.end()] + f"{indent}print()\n" + TEXT[found.end() :]
    different = digests(changed).items() ^ WRITTEN_FOR.items()
    assert {key for key, _ in different} == {name}


# What the engine computes


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("tied", [True, False])
def test_the_paper_by_the_functions_of_torch_is_the_model(tiny: Config, norm: Any, tied: bool) -> None:
    config = replace(tiny, norm=norm, tie_embeddings=tied)
    model = Transformer(300, config).eval()
    for weight in model.parameters():  # biases and scales that matter, too
        weight.data += torch.randn_like(weight) / 10
    assert nonstandard_part(model) == ""
    install_fast_modules(model)
    assert nonstandard_part(model) == ""
    batch = probe(300, config.max_length)
    with torch.no_grad():
        expected = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        found = Standard(parameters(model), config).logits(batch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def gelu(self: FeedForwardBlock, x: Tensor) -> Tensor:
    return self.linear_2(F.gelu(self.linear_1(x)))


def twice(self: Any, x: Tensor, *rest: Any) -> Tensor:
    return 2 * type(self).original(self, x, *rest)


@pytest.mark.parametrize(
    "kind",
    [
        "InputEmbeddings",
        "PositionalEncoding",
        "LayerNormalization",
        "FeedForwardBlock",
        "MultiHeadAttentionBlock",
        "ResidualConnection",
        "ProjectionLayer",
    ],
)
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_part_that_computes_something_else_is_named(
    kind: str, norm: Any, tiny: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = getattr(model_module, kind)
    monkeypatch.setattr(part, "original", part.forward, raising=False)
    monkeypatch.setattr(part, "forward", twice)
    assert nonstandard_part(Transformer(300, replace(tiny, norm=norm)).eval()) == kind


def test_blocks_in_another_order_are_the_transformer(tiny: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(self: Encoder, x: Tensor, attend: Attend) -> Tensor:
        for block in reversed(self.blocks):
            x = block(x, attend)
        return self.norm(x)

    monkeypatch.setattr(Encoder, "forward", backwards)
    assert nonstandard_part(Transformer(300, replace(tiny, n_encoder_layers=2)).eval()) == "Transformer"


def test_a_weight_that_the_paper_has_not_is_named(tiny: Config) -> None:
    model = Transformer(300, tiny).eval()
    model.decoder.add_module("gate", nn.Linear(4, 4))
    assert nonstandard_part(model) == "the weight decoder.gate.bias"


def test_the_engine_gives_way(tiny: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Transformer(300, tiny).eval()
    assert isinstance(searcher_of(model, CPU), Engine)
    monkeypatch.setattr(FeedForwardBlock, "forward", gelu)
    searcher = searcher_of(model, CPU)
    assert isinstance(searcher, TorchSearcher)
    assert not searcher.is_plain
    with pytest.raises(ConfigError, match=r"int8 is for the paper's model: FeedForwardBlock of model\.py"):
        searcher_of(model, CPU, "int8")


def test_a_fast_form_gives_way(tiny: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoding.torch_searcher.edited_replaced_parts", lambda: ("LayerNormalization",))
    searcher = searcher_of(Transformer(300, tiny).eval(), CPU, "fp32")
    assert isinstance(searcher, TorchSearcher)
    assert searcher.is_plain
    assert any(type(module) is LayerNormalization for module in searcher.model.modules())


# What a run records


def edit(monkeypatch: pytest.MonkeyPatch) -> None:
    """GELU, as if it stood in model.py."""
    monkeypatch.setattr(FeedForwardBlock, "forward", gelu)
    monkeypatch.setattr("decoding.translator.edited_parts", lambda: ("FeedForwardBlock",))


def test_a_run_from_before_an_edit_translates_as_it_learned(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Translator.load(run_folder.path, "cpu")(["A cat."])
    edit(monkeypatch)
    assert Translator.load(run_folder.path, "cpu")(["A cat."]) == before
    assert capsys.readouterr().err == ""
    Translator.load(run_folder.path, "cpu", "fp32")
    assert "warning   FeedForwardBlock of model.py is not as it was when" in capsys.readouterr().err


def test_a_run_from_after_an_edit_needs_it(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, model = run_folder.load_model(CPU)
    with monkeypatch.context() as during:
        edit(during)
        run_folder.save_model(parameters(model), nonstandard_part(model))
        translator = Translator.load(run_folder.path, "cpu")
        assert isinstance(translator.searcher, TorchSearcher)
        assert "FeedForwardBlock of model.py computes something other than the engine" in capsys.readouterr().err
    Translator.load(run_folder.path, "cpu")
    assert "warning   FeedForwardBlock of model.py is not as it was when" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"an edited model\.py \(FeedForwardBlock\)"):
        PackageTranslator.load(run_folder.path)
    monkeypatch.setattr("decoding.standard.nonstandard_part", lambda model: "LayerNormalization")  # another edit
    monkeypatch.setattr("decoding.translator.edited_parts", lambda: ("LayerNormalization",))
    Translator.load(run_folder.path, "cpu")
    assert "warning   LayerNormalization of model.py is not as it was when" in capsys.readouterr().err


def test_a_run_that_does_not_say_so_is_asked_after_an_edit_alone(
    run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(RunFolder, "nonstandard_part", lambda self: None)
    monkeypatch.setattr("decoding.translator.CheckoutFiles.nonstandard_part", lambda self: None)
    assert isinstance(Translator.load(run_folder.path, "cpu").searcher, Engine)
    edit(monkeypatch)
    assert isinstance(Translator.load(run_folder.path, "cpu").searcher, TorchSearcher)
    assert "note      FeedForwardBlock of model.py" in capsys.readouterr().err


# The page


def test_the_page_has_the_examples() -> None:
    assert re.findall(r"^## (.*)$", PAGE, re.MULTILINE)[1:-1] == list(EXAMPLES)


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_of_the_page_is_trained_and_translates(title: str, few: Path, forked: Any) -> None:
    """In a checkout of its own, of which model.py is edited."""
    replaced, part = EXAMPLES[title]
    checkout = Path("checkout").resolve()
    checkout.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("model.py", "weights", "runs", ".git") and not path.name.startswith("."):
            (checkout / path.name).symlink_to(path)
    (checkout / "model.py").write_text(edited(title), encoding="utf-8")
    start = checkout / "start.py"
    start.write_text(
        "import runpy, sys\n"
        f"sys.path[0] = {str(checkout)!r}\n"
        "del sys.argv[0]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n",
        encoding="utf-8",
    )

    def run(script: str, *args: str) -> Any:
        return forked(str(start), str(checkout / script), *args)

    done = run("train.py", "demo", "--data", str(few), *SMALL, "--steps", "2", "--name", "edited")
    err = done.stderr
    assert done.returncode == 0, err
    assert ("training without fast forms" in err) == bool(replaced)
    assert replaced in err
    assert (f"note      {part} of model.py computes something other than the engine" in err) == bool(part)
    run_folder = RunFolder(Path("weights/edited"))
    assert run_folder.nonstandard_part() == part
    assert run_folder.load_config().plain == bool(replaced)

    done = run("translate.py", "--run", "edited", "A cat.")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1), done.stderr
    assert ("translating with torch" in done.stderr) == bool(part)

    done = run("export.py", "--run", "edited", "--to", "web", "page.html")
    assert done.returncode == (2 if part else 0), done.stderr
    if part:
        assert done.stderr.count("\n") == 1
        assert f"cannot express {part}" in done.stderr
