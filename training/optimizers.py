"""How weights are updated: the learning rate's schedule, Adam, and Muon for the matrices of the blocks."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from config import Config
from model import Transformer
from tapis.config import Precision

MOMENTUM = 0.95  # of Muon


def learning_rate(step: int, total: int, warmup_steps: int, config: Config) -> float:
    """Return the learning rate at a step, counted from 1: linear warm-up to config.lr, then decay.

    "inverse_sqrt" is section 5.3's, lr · √(warmup / step). "linear" stays at lr for half of the steps and then goes to
    zero in a straight line (a constant rate and a cooldown: Hägele et al. 2024, arXiv 2405.18392). The first half
    therefore need not know how many steps there are. Beyond total, it is 0.
    """
    warmup = min(warmup_steps, total // 10)
    if step <= warmup:
        return config.lr * step / warmup
    if config.schedule == "inverse_sqrt":
        return config.lr * math.sqrt(max(1, warmup) / step)
    return config.lr * max(0.0, min(1.0, 2 * (total - step + 1) / total))


class Muon(torch.optim.Optimizer):
    """Replaces a matrix's momentum by the nearest orthogonal matrix, so that all its directions learn equally fast.

    As in Jordan et al. 2024 (kellerjordan.github.io/posts/muon), with Nesterov's momentum, and scaled to Adam's step
    (Liu et al. 2025, arXiv 2502.16982, section 2.2), so that it takes Adam's rate. It equals torch.optim.Muon with
    ns_steps=3, adjust_lr_fn="match_rms_adamw" and no weight decay, and takes over that optimizer's state. It updates
    all matrices of a shape at once: one by one, they take a CPU 1.3 to 1.7 times as long.
    """

    def __init__(self, matrices: Sequence[nn.Parameter], dtype: torch.dtype) -> None:
        """dtype: what the products are computed in. bf16 is enough, but slow on CPUs without instructions for it."""
        super().__init__(matrices, {"lr": 0.0})
        self.dtype = dtype
        self.found_inf: Tensor | None = None
        self.matrices_by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for matrix in matrices:  # (M, N) and (N, M) together
            self.matrices_by_shape.setdefault(tuple(sorted(matrix.shape)), []).append(matrix)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every matrix. Each must have a gradient."""
        for (short_side, long_side), matrices in self.matrices_by_shape.items():
            gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]

            # Nesterov's momentum.
            for matrix in matrices:
                if not self.state[matrix]:
                    self.state[matrix]["momentum_buffer"] = torch.zeros_like(matrix)
            momenta = [self.state[matrix]["momentum_buffer"] for matrix in matrices]
            torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
            updates = torch._foreach_lerp(gradients, momenta, MOMENTUM)

            # Orthogonalize them together, all of them wide.
            is_tall = [len(update) > short_side for update in updates]
            wide = torch.stack([update.T if tall else update for update, tall in zip(updates, is_tall, strict=True)])
            orthogonal = orthogonalize(wide, self.dtype)

            # Step. As with torch's fused optimizers, found_inf is 1 where the gradient is not finite.
            rate = self.param_groups[0]["lr"]  # a number, or a tensor
            steps = orthogonal.to(matrices[0].dtype) * (-0.2 * math.sqrt(long_side) * rate)
            if self.found_inf is not None:
                steps.masked_fill_(self.found_inf.bool(), 0.0)
            by_matrix = [step.T if tall else step for step, tall in zip(steps, is_tall, strict=True)]
            torch._foreach_add_(list[Tensor](matrices), by_matrix)


def orthogonalize(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Matrices (I, M, N) with M ≤ N → about the nearest ones with orthonormal rows, computed in a type.

    Three of Jordan's Newton-Schulz iterations, X ← aX + b(XXᵀ)X + c(XXᵀ)²X: they learn as much as torch's five.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = (x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)).to(dtype)
    for _ in range(3):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


# What an optimizer keeps of each weight, in its state
KEPT_OF_A_WEIGHT: dict[type[torch.optim.Optimizer], set[str]] = {
    torch.optim.Adam: {"step", "exp_avg", "exp_avg_sq"},
    Muon: {"momentum_buffer"},
}


def make_optimizers(model: Transformer, config: Config, precision: Precision) -> list[torch.optim.Optimizer]:
    """Return the optimizers of a model: each weight has one, and all follow the same rate.

    Adam is section 5.3's (Kingma and Ba 2015, arXiv 1412.6980). The products of Muon lengthen the training of a small
    model by an eighth, and it earns them back: after 12 epochs of Multi30k en-de it has 34.6 BLEU where Adam has 33.1
    (docs/lab).
    """
    blocks = [*model.encoder.parameters(), *model.decoder.parameters()]
    matrices = [parameter for parameter in blocks if parameter.dim() == 2 and config.optimizer == "muon"]
    with_muon = set(matrices)
    others = [parameter for parameter in model.parameters() if parameter not in with_muon]
    on_gpu = others[0].device.type == "cuda"  # where `fast.capture` captures it
    adam = torch.optim.Adam(others, betas=(0.9, 0.98), eps=1e-9, fused=True, capturable=on_gpu)
    # Where training computes in bf16, the hardware is fast at it, and so few digits are enough for Muon. fp16 has too
    # small a range for the squares of its iterations.
    muon_dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    return [adam, Muon(matrices, muon_dtype)] if matrices else [adam]
