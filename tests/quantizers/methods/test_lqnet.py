"""LQ-Nets against brute force and numpy's least squares; QEM never raises the error."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product
from threading import Barrier, get_ident

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dbq.errors import PlanError
from dbq.plans.precision import Precision
from dbq.quantizers.fitting.qem import fit, nearest_codes, patterns, qem
from dbq.quantizers.methods import lqnet
from dbq.quantizers.methods.lqnet import LqNetInputQuantizer, LqNetQuantizer, sample
from tests.gradient import gradient
from tests.quantizers.contract import fitted, gradients


def nearest_by_hand(
    row: np.ndarray, basis: np.ndarray, alphabet: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """Codes [D, B] and levels [D] of the nearest of all levels, by looking at each."""
    codes = np.array(list(product(alphabet, repeat=len(basis))), dtype=float)
    chosen = codes[np.abs(row[:, None] - codes @ basis).argmin(1)]
    return chosen, chosen @ basis


def squared_error(rows: Tensor, codes: Tensor, basis: Tensor) -> Tensor:
    return (torch.einsum("bkd,kb->kd", codes, basis) - rows).square().sum(1)


# ---------------------------------------------------------------- QEM


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    branches=st.integers(1, 3),
    size=st.integers(1, 40),
    signed=st.booleans(),
    spread=st.floats(0.0, 3.0),
)
def test_qem_never_raises_the_error(
    seed: int, branches: int, size: int, signed: bool, spread: float
) -> None:
    torch.manual_seed(seed)
    rows = torch.randn(6, size, dtype=torch.float64)
    rows[1] = rows[1].round()  # few values: codes depend on each other
    rows[2] = rows[2, 0]
    rows[3] = 0
    basis = spread * torch.randn(6, branches, dtype=torch.float64)  # of any sign and order
    alphabet = patterns(branches, signed)
    codes, better = qem(rows, basis, alphabet)
    assert torch.isfinite(better).all()
    before, after = squared_error(rows, codes, basis), squared_error(rows, codes, better)
    again = squared_error(rows, nearest_codes(rows, better, alphabet), better)
    # Sums of at most 40 squares of numbers up to 10 or so: roundings of 4000 * 2^-53.
    assert (after <= before + 1e-11).all()
    assert (again <= after + 1e-11).all()


@pytest.mark.parametrize("branches", [1, 2, 3])
def test_one_step_is_nearest_codes_and_least_squares(branches: int) -> None:
    rows = torch.randn(5, 60, dtype=torch.float64)
    basis = torch.rand(5, branches, dtype=torch.float64) + 0.1
    codes, better = qem(rows, basis, patterns(branches, signed=True))
    for k, row in enumerate(rows.numpy()):
        chosen, _ = nearest_by_hand(row, basis[k].numpy(), (-1, 1))
        np.testing.assert_array_equal(codes[:, k].numpy().T, chosen)
        expected = np.linalg.lstsq(chosen, row, rcond=None)[0]
        # Condition below 1e3, 60 roundings of 2^-53.
        np.testing.assert_allclose(better[k].numpy(), expected, rtol=1e-10)


def test_what_the_codes_leave_open_stays() -> None:
    rows = torch.full((1, 8), 0.9, dtype=torch.float64)
    basis = torch.tensor([[0.25, 0.5]], dtype=torch.float64)  # all weights take 0.75
    codes, better = qem(rows, basis, patterns(2, signed=True))
    assert (codes == 1).all()
    assert better[0].tolist() == pytest.approx([0.9 - 0.5, 0.5], rel=1e-14)


@pytest.mark.parametrize(("branches", "optimum"), [(1, 0.3634), (2, 0.1175), (3, 0.03454)])
def test_the_start_is_near_the_best_levels_for_normal_weights(
    branches: int, optimum: float
) -> None:
    """Max's quantizers of N(0, 1) (1960) have free levels: no basis can do better."""
    rows = torch.randn(4, 20000, dtype=torch.float64)
    alphabet = patterns(branches, signed=True)
    basis = fit(rows, alphabet)
    error = squared_error(rows, nearest_codes(rows, basis, alphabet), basis) / 20000
    # The error of 20,000 draws is good to 2 %; that levels are sums costs 8 % at B = 3.
    assert (error > 0.95 * optimum).all()
    assert (error < 1.15 * optimum).all()
    again = qem(rows, basis, alphabet)[1]
    assert torch.allclose(again, basis, rtol=1e-3), "50 rounds were enough"


# ---------------------------------------------------------------- weights


@pytest.mark.parametrize("branches", [1, 2, 3])
@pytest.mark.parametrize("momentum", [0.1, 0.4])
def test_training_steps(branches: int, momentum: float) -> None:
    """Output with the old basis, then a moving average with the least squares of its codes."""

    def make(kernels: int) -> LqNetQuantizer:
        return LqNetQuantizer(Precision("binary", branches), kernels, momentum).double()

    w = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    quantizer = fitted(make, w).train()
    for _ in range(3):
        w = w + 0.3 * torch.randn_like(w)
        before = quantizer.basis.numpy().copy()
        found = quantizer(w).reshape(5, -1).numpy()
        for k, row in enumerate(w.reshape(5, -1).numpy()):
            codes, levels = nearest_by_hand(row, before[k], (-1, 1))
            target = np.linalg.lstsq(codes, row, rcond=None)[0]
            np.testing.assert_allclose(found[k], levels, rtol=1e-14)
            np.testing.assert_allclose(
                quantizer.basis[k].numpy(),
                (1 - momentum) * before[k] + momentum * target,
                rtol=1e-10,
            )


def test_gradient_is_straight_through_and_eval_moves_nothing() -> None:
    w, G = torch.randn(4, 9), torch.randn(4, 9)
    quantizer = fitted(lambda k: LqNetQuantizer(Precision("binary", 2), k), w)
    assert torch.equal(gradients(quantizer, w, G)[0], G)
    before = quantizer.basis.clone()
    quantizer.eval()(w + 1)
    assert torch.equal(quantizer.basis, before)
    quantizer.train()(w + 1)
    assert not torch.equal(quantizer.basis, before)


def test_what_it_refuses() -> None:
    with pytest.raises(PlanError, match="momentum"):
        LqNetQuantizer(Precision("binary", 2), 3, momentum=2.0)


# ---------------------------------------------------------------- activations


def tensor_for(signed: bool, *shape: int) -> Tensor:
    x = torch.randn(shape)
    return x if signed else x.relu()


@pytest.mark.parametrize("bits", [2, 3, 4])
@pytest.mark.parametrize("signed", [True, False])
def test_activations_take_the_nearest_level_and_the_basis_follows(bits: int, signed: bool) -> None:
    quantizer = LqNetInputQuantizer(Precision("fixed", bits), signed).train().double()
    assert (quantizer.precision.size, quantizer.signed) == (bits, signed)
    alphabet = (-1, 1) if signed else (0, 1)
    quantizer(tensor_for(signed, 8, 5, 6, 6).double())
    for _ in range(3):
        x = 1.5 * tensor_for(signed, 8, 5, 6, 6).double()
        before = quantizer.basis[0].numpy().copy()
        found = quantizer(x)
        codes, levels = nearest_by_hand(x.numpy().ravel(), before, alphabet)
        np.testing.assert_allclose(found.numpy().ravel(), levels, rtol=1e-13, atol=1e-13)
        target = np.linalg.lstsq(codes, x.numpy().ravel(), rcond=None)[0]
        # 1440 terms, condition below 1e3
        np.testing.assert_allclose(
            quantizer.basis[0].numpy(), 0.9 * before + 0.1 * target, rtol=1e-9
        )


@pytest.mark.parametrize("signed", [True, False])
def test_gradient_passes_between_the_outermost_levels(signed: bool) -> None:
    quantizer = LqNetInputQuantizer(Precision("fixed", 2), signed).eval()
    with torch.no_grad():
        quantizer.basis.copy_(torch.tensor([[0.5, 1.0]]))  # levels up to 1.5
    x = torch.tensor([-2.0, -1.5, -0.1, 0.0, 0.7, 1.5, 1.6], requires_grad=True)
    G = torch.randn(7)
    (quantizer(x) * G).sum().backward()
    inside = [False, signed, signed, True, True, True, False]
    assert torch.equal(gradient(x), torch.where(torch.tensor(inside), G, 0.0))


def test_before_a_batch_the_basis_is_that_of_the_tensor() -> None:
    quantizer = LqNetInputQuantizer(Precision("fixed", 3), signed=False).eval()
    x = tensor_for(False, 4, 3, 8, 8)
    small, large = quantizer(x), quantizer(1024 * x)
    assert not quantizer.basis.any(), "nothing is kept in eval()"
    assert torch.equal(large, 1024 * small)
    assert (small - x).square().mean() < 0.02 * x.square().mean()  # 3 bits: 1.3 % of the power
    quantizer.train()(x)
    kept = quantizer.basis.clone()
    # The first step moves a basis that has come to rest: by less than a thousandth.
    assert torch.allclose(quantizer.eval()(x).unique(), small.unique(), rtol=1e-3)
    assert torch.isclose(quantizer(1024 * x).max(), small.max(), rtol=1e-3), "it is kept"
    assert torch.equal(quantizer.basis, kept)
    quantizer.reset()
    assert torch.equal(quantizer(x), small)


@pytest.mark.parametrize("signed", [True, False])
def test_processes_have_one_basis(monkeypatch: pytest.MonkeyPatch, signed: bool) -> None:
    """Two halves of a batch in two threads that meet to add: the basis of the whole batch."""
    meeting = Barrier(2)
    brought: dict[int, Tensor] = {}

    def all_reduce(sums: Tensor, op: object) -> None:
        brought[get_ident()] = sums.clone()
        meeting.wait()
        total = torch.stack([*brought.values()]).sum(0)
        meeting.wait()
        sums.copy_(total)

    def train(batches: list[Tensor]) -> Tensor:
        quantizer = LqNetInputQuantizer(Precision("fixed", 3), signed).train().double()
        for x in batches:
            quantizer(x)
        return quantizer.basis

    batches = [tensor_for(signed, 2, 4, 50).double() * scale for scale in (1.0, 1.5)]
    whole = train(batches)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(train, ([x[half] for x in batches] for half in (0, 1)))
    assert torch.equal(first, second)
    assert torch.allclose(first, whole, rtol=1e-10)  # sums of 400 doubles in another order


def test_activations_resume() -> None:
    first, second = (LqNetInputQuantizer(Precision("fixed", 3), signed=True) for _ in range(2))
    x = torch.randn(4, 50)
    first.train()(x)
    second.load_state_dict(first.state_dict())
    for _ in range(2):
        assert torch.equal(first.train()(2 * x), second.train()(2 * x))
        assert torch.equal(first.eval()(x), second.eval()(x))


@pytest.mark.parametrize("signed", [True, False])
def test_odd_tensors(signed: bool) -> None:
    for x in (torch.zeros(3, 4), torch.full((3, 4), 0.3), torch.zeros(0, 4), torch.rand(1, 1)):
        quantizer = LqNetInputQuantizer(Precision("fixed", 8), signed)
        for mode in (True, False, True):
            found = quantizer.train(mode)(x)
            assert found.shape == x.shape
            assert torch.allclose(found, x, atol=1e-6)
            assert torch.isfinite(quantizer.basis).all()
    quantizer = LqNetInputQuantizer(Precision("fixed", 2), signed).eval()
    quantizer.basis.fill_(1.0)
    assert quantizer(torch.tensor([torch.nan, 0.1])).isnan().tolist() == [True, False]
    assert quantizer(torch.rand(5).bfloat16()).dtype == torch.bfloat16


def test_a_batch_of_zeros_is_seen_and_the_next_batch_replaces_it() -> None:
    quantizer, x = (
        LqNetInputQuantizer(Precision("fixed", 3), signed=True).train(),
        torch.randn(4, 50),
    )
    fresh = LqNetInputQuantizer(Precision("fixed", 3), signed=True).train()
    quantizer(torch.zeros(4, 50))
    assert quantizer.has_seen
    kept = quantizer.basis.clone()
    assert quantizer.eval()(x).abs().max() < 1e-6, "eval() uses what was seen"
    assert torch.equal(quantizer.basis, kept)
    assert torch.equal(quantizer.train()(x), fresh(x))
    assert torch.equal(quantizer.basis, fresh.basis)


def test_a_sample_has_all_channels_and_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lqnet, "SAMPLE", 600)
    x = torch.arange(16 * 6 * 10 * 10).reshape(16, 6, 10, 10)
    taken = sample(x)
    assert 400 < len(taken) <= 600
    assert torch.equal(taken, sample(x))
    assert len((taken // 100 % 6).unique()) == 6, "channels"
    assert len((taken % 100).unique()) == 100, "positions"
    assert len((taken // 600).unique()) == 16, "images"
    assert torch.equal(sample(x[:1]), x[:1].flatten()), "small tensors are taken whole"
