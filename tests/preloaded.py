"""What takes commands seconds to import and to load. The process that tests fork imports it once (launching.py)."""

import datasets
import matplotlib.figure
import tokenizers
import torch._dynamo  # which torch's optimizers import
import torch.utils.tensorboard
import torchmetrics.functional.text
import tyro

import evaluate
import train
import translate
from tapis.text.languages import language_identifier

__all__ = ["datasets", "evaluate", "matplotlib", "tokenizers", "torch", "torchmetrics", "train", "translate", "tyro"]

language_identifier()
