"""What takes commands seconds to import and to load. The process that tests fork imports it once (launching.py).

train.py and model.py are not among it: some tests change them.
"""

import datasets
import matplotlib.figure
import tokenizers
import torch._dynamo  # which torch's optimizers import
import torch.utils.tensorboard
import torchmetrics.functional.text
import tyro

from tapis.text.languages import language_identifier

__all__ = ["datasets", "matplotlib", "tokenizers", "torch", "torchmetrics", "tyro"]

language_identifier()
