"""The branch quantizer against the paper's equations, autograd, and its own promises."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dbq.plans.precision import Precision
from dbq.quantizers.dbq.branch import BranchQuantizer, level_codes
from tests.gradient import gradient
from tests.quantizers.contract import assert_exact


def quantizer_for(weight: Tensor, branches: int, init: str = "alternate") -> BranchQuantizer:
    quantizer = BranchQuantizer(Precision("ternary", branches), len(weight), init).to(weight.dtype)
    quantizer.initialise(weight)
    return quantizer


def expanded_2t(
    w: Tensor, alpha: Tensor, g1: Tensor, g2: Tensor, t: Tensor, f: Callable[[Tensor], Tensor]
) -> Tensor:
    """The paper's expanded equation for B = 2, term by term as printed, for one kernel."""
    a1, a2 = alpha
    u = g1 * w
    return g2 * (
        a2 * f(u - t[0])
        + (a1 - a2) * f(u - t[1])
        + (2 * a2 - a1) * f(u - t[2])
        + (a1 - a2) * f(u - t[3])
        + (a1 - a2) * f(u - t[4])
        + (2 * a2 - a1) * f(u - t[5])
        + (a1 - a2) * f(u - t[6])
        + a2 * f(u - t[7])
        - (a1 + a2)
    )


# ---------------------------------------------------------------- the function


def random_2t() -> tuple[Tensor, BranchQuantizer]:
    """Five kernels inside the paper's region alpha_1 >= alpha_2 >= alpha_1 / 2."""
    w = torch.randn(5, 40, dtype=torch.float64)
    quantizer = quantizer_for(w, 2)
    with torch.no_grad():
        quantizer.alpha[:, 0] = torch.linspace(0.4, 0.6, 5)
        quantizer.alpha[:, 1] = quantizer.alpha[:, 0] * torch.linspace(0.55, 0.95, 5)
        quantizer.gamma_1.mul_(1.3)
        quantizer.gamma_2.mul_(0.7)
        quantizer.t.copy_((torch.randn(5, 8, dtype=torch.float64) * 0.5).sort(dim=1).values)
    return w, quantizer


@pytest.mark.parametrize("temperature", [1.0, 5.0, 50.0])
def test_soft_2t_is_the_papers_expanded_equation(temperature: float) -> None:
    w, quantizer = random_2t()
    quantizer.temperature.fill_(temperature)
    quantizer.train()
    q = quantizer
    expected = torch.stack([
        expanded_2t(w[k], q.alpha[k], q.gamma_1[k], q.gamma_2[k], q.t[k],
                    lambda u: 1 / (1 + torch.exp(-temperature * u)))
        for k in range(len(w))
    ])  # fmt: skip
    # 8 terms, each O(1) and rounded to 2^-53 relative: 1e-14 leaves a factor of ten.
    torch.testing.assert_close(quantizer(w), expected, rtol=0, atol=1e-14)


def test_hard_2t_is_the_papers_expanded_equation_with_ideal_steps() -> None:
    w, quantizer = random_2t()
    q = quantizer.eval()
    expected = torch.stack([
        expanded_2t(w[k], q.alpha[k], q.gamma_1[k], q.gamma_2[k], q.t[k], lambda u: (u > 0).double())
        for k in range(len(w))
    ])  # fmt: skip
    torch.testing.assert_close(quantizer(w), expected, rtol=0, atol=1e-14)


def test_level_order_for_two_branches_is_the_papers() -> None:
    codes = level_codes(2)
    steps = codes.diff(dim=0).tolist()  # b_ij
    a2, difference, double = [0, 1], [1, -1], [-1, 2]
    assert steps == [a2, difference, double, difference, difference, double, difference, a2]


@pytest.mark.parametrize("branches", [1, 2, 3])
def test_soft_approaches_hard(branches: int) -> None:
    w = torch.randn(3, 60, dtype=torch.float64)
    quantizer = quantizer_for(w, branches)
    hard = quantizer.eval()(w)
    quantizer.train().temperature.fill_(1e7)
    # A weight within 40/T of a threshold is still on the slope; none of the 180 is that near.
    assert torch.allclose(quantizer(w), hard, atol=1e-12)


@pytest.mark.parametrize("signs", [(-1, 1), (1, -1), (-1, -1)])
def test_soft_approaches_hard_with_negative_gammas(signs: tuple[int, int]) -> None:
    w = torch.randn(3, 60, dtype=torch.float64)
    quantizer = quantizer_for(w, 2)
    with torch.no_grad():
        quantizer.gamma_1.mul_(signs[0])
        quantizer.gamma_2.mul_(signs[1])
    hard = quantizer.eval()(w)
    assert_exact(quantizer, w)
    quantizer.train().temperature.fill_(1e7)
    assert torch.allclose(quantizer(w), hard, atol=1e-12)


def test_nan_weights_are_not_hidden() -> None:
    w = torch.randn(2, 9)
    quantizer = quantizer_for(w, 2)
    w[1, 4] = torch.nan
    for mode in (quantizer.train, quantizer.eval):
        mode()
        assert quantizer(w).isnan().nonzero().tolist() == [[1, 4]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_temperature_may_change_between_forward_and_backward(dtype: torch.dtype) -> None:
    """float32 takes the native path, float64 the torch one; both keep the T they went forward with."""
    w = torch.randn(2, 9, dtype=dtype)
    gradients = []
    for later in (7.0, 700.0):
        quantizer = quantizer_for(w, 2).train()
        quantizer.temperature.fill_(7.0)
        x = w.clone().requires_grad_()
        z = quantizer(x)
        quantizer.temperature.fill_(later)
        z.sum().backward()
        gradients.append(gradient(x))
    assert torch.equal(*gradients)


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("branches", [1, 2, 3])
def test_gradcheck_through_the_whole_quantizer(branches: int) -> None:
    w = torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    quantizer = quantizer_for(w, branches).train()
    quantizer.temperature.fill_(4.0)
    parameters = [quantizer.alpha, quantizer.gamma_1, quantizer.gamma_2, quantizer.t]

    def forward(weight: Tensor, *_: Tensor) -> Tensor:
        return quantizer(weight)

    assert torch.autograd.gradcheck(forward, (w, *parameters), eps=1e-6, atol=1e-7)


def naive(quantizer: BranchQuantizer, w: Tensor) -> Tensor:
    """The soft forward left to autograd: every K x D x (N-1) sigmoid at once, levels by sorting."""
    alpha = quantizer.alpha.abs().sort(dim=1, descending=True).values
    codes = torch.tensor(list(itertools.product((-1, 0, 1), repeat=alpha.shape[1])))
    levels = (alpha @ codes.T.to(alpha)).sort(dim=1).values
    t = quantizer.t.sort(dim=1).values
    u = (quantizer.gamma_1 * w).unsqueeze(2) - t.unsqueeze(1)
    g = torch.sigmoid(quantizer.temperature * u)
    return quantizer.gamma_2 * ((g * levels.diff(dim=1).unsqueeze(1)).sum(2) + levels[:, :1])


@pytest.mark.parametrize("branches", [1, 2, 3])
@pytest.mark.parametrize("disorder", [0.0, 0.3, 3.0])
def test_gradients_equal_naive_autograd(branches: int, disorder: float) -> None:
    """In order, and with thresholds crossed and alphas swapped or negative."""
    w = torch.randn(4, 30, dtype=torch.float64)
    quantizer = quantizer_for(w, branches).train()
    quantizer.temperature.fill_(7.0)
    with torch.no_grad():
        for parameter in quantizer.parameters():
            parameter.add_(disorder * torch.randn_like(parameter))
    twin = copy.deepcopy(quantizer)
    w1, w2 = w.clone().requires_grad_(), w.clone().requires_grad_()
    weighting = torch.randn(4, 30, dtype=torch.float64)
    ours, theirs = quantizer(w1), naive(twin, w2)
    # sums of at most 30 * 26 products of O(10) doubles: a few thousand roundings of 2^-53
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    (ours * weighting).sum().backward()
    (theirs * weighting).sum().backward()
    torch.testing.assert_close(w1.grad, w2.grad, rtol=1e-10, atol=1e-10)
    for (name, a), b in zip(quantizer.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-10, msg=name)


def test_gradients_are_the_papers_five_equations() -> None:
    """Equations 8 to 12 written out with loops over k, i and j for one kernel."""
    T, branches = 6.0, 2
    w = torch.randn(1, 11, dtype=torch.float64, requires_grad=True)
    quantizer = quantizer_for(w.detach(), branches).train()
    quantizer.temperature.fill_(T)
    G = torch.randn(11, dtype=torch.float64)
    quantizer(w).backward(G.unsqueeze(0))

    alpha, t = quantizer.alpha[0].detach(), quantizer.t[0].detach()
    g1, g2 = quantizer.gamma_1.item(), quantizer.gamma_2.item()
    assert alpha[0] >= alpha[1] >= alpha[0] / 2 > 0, "inside the region the equations assume"
    b = level_codes(branches).diff(dim=0).double()
    D, steps, x = 11, len(t), w[0].detach()
    g = torch.tensor([[1 / (1 + torch.exp(-T * (g1 * x[k] - t[i]))) for i in range(steps)]
                      for k in range(D)], dtype=torch.float64)  # fmt: skip
    h = g * (1 - g)
    c = [sum(b[i, j] * alpha[j] for j in range(branches)) for i in range(steps)]
    z = [g2 * (sum(g[k, i] * c[i] for i in range(steps)) - alpha.sum()) for k in range(D)]
    slope = [sum(h[k, i] * c[i] for i in range(steps)) for k in range(D)]

    d_gamma_2 = sum(G[k] * z[k] for k in range(D)) / g2
    d_alpha = [g2 * sum(G[k] * (sum(b[i, j] * g[k, i] for i in range(steps)) - 1) for k in range(D))
               for j in range(branches)]  # fmt: skip
    d_t = [-g2 * T * sum(G[k] * h[k, i] * c[i] for k in range(D)) for i in range(steps)]
    d_w = [g1 * g2 * T * G[k] * slope[k] for k in range(D)]
    d_gamma_1 = g2 * T * sum(G[k] * x[k] * slope[k] for k in range(D))

    def same(ours: Tensor | None, theirs: object) -> None:
        expected = torch.as_tensor(theirs, dtype=torch.float64).flatten()
        assert ours is not None
        # the loops add in another order: about 11 * 8 roundings of 2^-53
        torch.testing.assert_close(ours.flatten(), expected, rtol=1e-12, atol=1e-13)

    same(quantizer.gamma_2.grad, d_gamma_2)
    same(quantizer.alpha.grad, d_alpha)
    same(quantizer.t.grad, d_t)
    same(w.grad, d_w)
    same(quantizer.gamma_1.grad, d_gamma_1)


@pytest.mark.parametrize("branches", [1, 2, 3])
def test_nothing_larger_than_the_weight_is_kept_for_backward(branches: int) -> None:
    w = torch.randn(8, 500, requires_grad=True)
    quantizer = quantizer_for(w.detach(), branches).train()
    kept: dict[int, int] = {}

    def pack(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        quantizer(w)
    weight_bytes, levels = w.numel() * 4, 3**branches
    # the weight itself, and a few tensors (values and int64 sort indices) of K x N numbers
    assert sum(kept.values()) <= weight_bytes + 12 * 8 * levels * 8


# ---------------------------------------------------------------- codes, always exact


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**31), branches=st.integers(1, 3), spread=st.floats(0.01, 100))
def test_codes_recompose_after_any_training(seed: int, branches: int, spread: float) -> None:
    """Whatever the optimizer did: thresholds crossed, alphas swapped or negative, gammas flipped."""
    torch.manual_seed(seed)
    w = torch.randn(4, 25)
    quantizer = quantizer_for(w, branches)
    with torch.no_grad():
        for parameter in quantizer.parameters():
            parameter.add_(spread * torch.randn_like(parameter))
    assert_exact(quantizer, w)


@pytest.mark.parametrize("branches", [1, 2, 3])
@pytest.mark.parametrize("shape", [(6, 4, 3, 3), (6, 10)])
def test_codes_recompose_after_real_steps(branches: int, shape: tuple[int, ...]) -> None:
    w = torch.nn.Parameter(torch.randn(shape))
    quantizer = quantizer_for(w.detach(), branches)
    optimizer = torch.optim.SGD([w, *quantizer.parameters()], lr=0.2, momentum=0.9)
    target = torch.randn(shape)
    for _ in range(20):
        optimizer.zero_grad()
        quantizer.train()
        (quantizer(w) - target).square().mean().backward()
        optimizer.step()
        assert_exact(quantizer, w.detach())


def test_the_quantizer_is_monotone_for_any_parameters() -> None:
    """gamma > 0: a larger weight never gets a smaller value, even where levels changed order."""
    w = torch.linspace(-2, 2, 200).repeat(6, 1)
    quantizer = quantizer_for(w, 2)
    with torch.no_grad():
        ratio = torch.tensor([0.1, 0.4, 0.6, 0.9, 1.5, 5.0])  # alpha_2 / alpha_1, in and out
        quantizer.alpha[:, 1] = quantizer.alpha[:, 0] * ratio
        quantizer.t.copy_(torch.randn_like(quantizer.t))
    for mode in (quantizer.train, quantizer.eval):
        mode()
        # float32 rounding of 9 levels of O(1) may step back by an ulp or two
        assert (quantizer(w).diff(dim=1) >= -1e-6).all()


def test_the_value_does_not_jump_where_levels_exchange_places() -> None:
    w = torch.linspace(-1, 1, 50, dtype=torch.float64).unsqueeze(0)
    quantizer = quantizer_for(w, 2).train()
    values = []
    for ratio in (0.5 - 1e-9, 0.5 + 1e-9):  # alpha_2 crosses alpha_1 / 2
        with torch.no_grad():
            quantizer.alpha.copy_(torch.tensor([[0.6, 0.6 * ratio]]))
        values.append(quantizer(w).detach())
    assert (values[0] - values[1]).abs().max() < 1e-8  # |dQ/dalpha| <= 2, times 1.2e-9


# ---------------------------------------------------------------- degenerate kernels


@pytest.mark.parametrize("branches", [1, 2, 3])
@pytest.mark.parametrize("init", ["alternate", "kmeans"])
def test_degenerate_kernels(branches: int, init: str) -> None:
    w = torch.zeros(8, 12)
    w[1] = 0.3  # constant
    w[2] = -0.3
    w[3, ::2], w[3, 1::2] = 0.5, -0.5  # two values
    w[4, 5] = 1e-20  # a single tiny weight
    w[5, 0] = 7.0
    w[6] = 1e-41  # has no inverse in float32
    w[7] = 1e-37  # has one, but not times T
    quantizer = quantizer_for(w, branches, init)
    for parameter in quantizer.parameters():
        assert torch.isfinite(parameter).all()
    hard = quantizer.eval()(w)
    assert_exact(quantizer, w)
    assert (hard[0] == 0).all(), "a kernel of zeros stays zero"
    # One magnitude per kernel is one level: represented to float32 rounding.
    assert torch.allclose(hard, w, rtol=1e-5, atol=1e-30)
    soft = quantizer.train()(w)
    soft.sum().backward()
    for parameter in quantizer.parameters():
        assert parameter.grad is not None
        assert torch.isfinite(parameter.grad).all()


def test_single_weight_kernels() -> None:
    w = torch.randn(5, 1)
    for branches, init in itertools.product((1, 2, 3), ("alternate", "kmeans")):
        quantizer = quantizer_for(w, branches, init)
        assert torch.allclose(quantizer.eval()(w), w, rtol=1e-5)


# ---------------------------------------------------------------- living with torch


def test_autocast_keeps_the_quantizer_in_float32() -> None:
    w = torch.randn(4, 30)
    quantizer = quantizer_for(w, 2)
    for mode in (quantizer.train, quantizer.eval):
        mode()
        plain = quantizer(w)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(quantizer(w), plain)


def test_half_precision_weights_are_quantized_in_float32() -> None:
    w = torch.randn(4, 30).bfloat16()
    quantizer = quantizer_for(w, 2).float()
    assert quantizer.train()(w).dtype == torch.bfloat16
    expected = quantizer(w.float()).bfloat16()
    assert torch.equal(quantizer(w), expected)


@pytest.mark.slow
def test_torch_compile_gives_the_same_values_and_gradients() -> None:
    w = torch.randn(4, 40, dtype=torch.float64)
    eager = quantizer_for(w, 2)
    compiled_quantizer = copy.deepcopy(eager)
    compiled = torch.compile(compiled_quantizer, backend="aot_eager", fullgraph=True)
    for quantizer in (eager, compiled_quantizer):
        quantizer.train()
    w1, w2 = w.clone().requires_grad_(), w.clone().requires_grad_()
    eager(w1).square().sum().backward()
    compiled(w2).square().sum().backward()
    # the same sums in another order: some 40 roundings of 2^-53
    torch.testing.assert_close(w1.grad, w2.grad, rtol=1e-10, atol=1e-12)
    for a, b in zip(eager.parameters(), compiled_quantizer.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-10, atol=1e-12)
