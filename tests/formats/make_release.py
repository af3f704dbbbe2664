"""Makes the tiny release by which later versions are tested, with the commands of the version at hand.

    python tests/formats/make_release.py FOLDER       writes format-N.tar.gz and format-N.txt into FOLDER

N is the format of config.json (`config.FORMAT`; 0 before there was a number). Run it from the project's root whenever N
grows, and commit both files. To make the release of an older version, copy this file into a checkout of that version.
"""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path.cwd()
SENTENCES = ["The cat is sitting on the mat.", "A small dog eats.", "She sees the red house."]
SIZES = ["--d-model", "16", "--n-heads", "2", "--n-encoder-layers", "1", "--n-decoder-layers", "1", "--d-ff", "32"]
TRAINING = ["--vocab-size", "280", "--steps", "300", "--valid-every", "300", "--precision", "fp32", "--device", "cpu"]


def main(folder: str) -> None:
    target = Path(folder).resolve()
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as work:

        def run(*args: str) -> str:
            done = subprocess.run(
                [sys.executable, str(ROOT / args[0]), *args[1:]], cwd=work, check=True, stdout=subprocess.PIPE
            )
            return done.stdout.decode()

        run("train.py", "demo", *SIZES, *TRAINING, "--name", "tiny")
        run("export.py", "--run", "tiny", "--release", "tiny-release", "--license", "mit")
        number = json.loads((Path(work) / "weights/tiny/config.json").read_text(encoding="utf-8")).get("format", 0)
        (Path(work) / "tiny-release.tar.gz").rename(target / f"format-{number}.tar.gz")
        # By the model alone: translate.py also repairs what repeats itself.
        sys.path.insert(0, str(ROOT))
        from translate import Translator

        translations = Translator.load(Path(work) / "weights/tiny", "cpu", "fp32")(SENTENCES)
        (target / f"format-{number}.txt").write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
