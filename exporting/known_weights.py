"""The weights of the paper's model, for which other programs have a place."""

import re

from model import Transformer
from tapis.config import ConfigError

_ATTENTION = r"(self_attention|cross_attention)\.w_[qkvo]\.weight"
_FEED_FORWARD = r"feed_forward\.linear_[12]\.(weight|bias)"
_NORM = r"norm\.(alpha|bias)"
KNOWN = re.compile(
    rf"(src_embed|tgt_embed)\.embedding\.weight|projection\.linear\.weight|(encoder|decoder)\.{_NORM}|"
    rf"(encoder|decoder)\.blocks\.\d+\.({_ATTENTION}|{_FEED_FORWARD}|residuals\.\d+\.{_NORM})"
)


def check_known(model: Transformer, program: str) -> None:
    """Raise ConfigError if the model has a weight that the format of a program would leave out in silence."""
    if unknown := [name for name, _ in model.named_parameters() if not KNOWN.fullmatch(name)]:
        raise ConfigError(f"{program} has no place for {unknown[0]}, which this model has besides those of the paper")
