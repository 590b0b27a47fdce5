"""The native staircase against the torch one in double precision, itself held to the paper."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from dbq.quantizers.dbq.branch import level_codes
from dbq.quantizers.dbq.staircase import TorchStaircase
from dbq.quantizers.dbq.staircase_native import NativeStaircase
from dbq.quantizers.native import NATIVE

no_compiler = not any(map(shutil.which, ("c++", "g++", "clang++")))
needs_native = pytest.mark.skipif(no_compiler, reason="no C++ compiler to build the library with")


@needs_native
def test_the_library_is_built_and_loads() -> None:
    assert NATIVE is not None


@needs_native
def test_accuracy_of_the_sigmoid() -> None:
    """One step of height 1 at 0 is the sigmoid itself: within 3 ulp, as the source says about 2."""
    x = torch.linspace(-40, 40, 100_001).unsqueeze(0)
    codes = torch.tensor([[-1], [0], [1]], dtype=torch.int8)
    one, far = torch.ones(1, 1), torch.tensor([[0.0, 1e9]])
    z = NativeStaircase.apply(x, one, one, one, far, torch.tensor(1.0), codes)
    exact = torch.sigmoid(x.double())
    # z = -1 + sigmoid: rounding of the sum adds half an ulp of 1
    assert float((z.double() + 1 - exact).abs().max()) <= 3.5 * 2**-24


def layer(kernels: int, length: int, branches: int, disorder: float) -> list[Tensor]:
    levels = 3**branches
    alpha = torch.rand(kernels, branches) + 0.2 - disorder * (torch.rand(kernels, branches) > 0.5)
    gamma_1, gamma_2 = torch.rand(2, kernels, 1) + 0.5
    if disorder:
        gamma_1, gamma_2 = gamma_1 * torch.randn(kernels, 1).sign(), -gamma_2
    t = torch.randn(kernels, levels - 1)
    t = t if disorder else t.sort(dim=1).values
    return [torch.randn(kernels, length), alpha, gamma_1, gamma_2, t]


def run(
    function: type[torch.autograd.Function], inputs: list[Tensor], T: float, G: Tensor
) -> list[Tensor]:
    inputs = [x.clone().requires_grad_() for x in inputs]
    codes = level_codes(inputs[1].shape[1])
    z = function.apply(*inputs, torch.tensor(T, dtype=inputs[0].dtype), codes)
    z.backward(G)
    return [z.detach(), *(x.grad for x in inputs if x.grad is not None)]


@needs_native
@pytest.mark.parametrize("branches", [1, 2, 3])
@pytest.mark.parametrize("disorder", [0.0, 1.0])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 15, 16, 17, 63, 64, 65, 577])
def test_native_equals_double_precision(branches: int, disorder: float, length: int) -> None:
    inputs, G = layer(5, length, branches, disorder), torch.randn(5, length)
    for T in (2.0, 20.0):
        ours = run(NativeStaircase, inputs, T, G)
        exact = run(TorchStaircase, [x.double() for x in inputs], T, G.double())
        for name, a, b in zip(("z", "w", "alpha", "g1", "g2", "t"), ours, exact, strict=True):
            # The argument T (gamma_1 w - t), |.| <= 20 * 10, is rounded to 2^-24 relative: 1.2e-5
            # absolute, times the sigmoid's slope of 1/4, in each of at most 577 terms of O(T); the
            # errors are independent, so they grow as the root of their number.
            scale = float(b.abs().max()) + T * length**0.5
            assert float((a - b).abs().max()) <= 1.2e-5 * scale, name


@needs_native
def test_rows_are_shared_out_over_threads() -> None:
    """2^21 sigmoids: enough for every thread to get a part. The bits do not depend on the split."""
    inputs, G = layer(512, 512, 2, 0.0), torch.randn(512, 512)
    threads = torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 7):
            torch.set_num_threads(count)
            results.append(run(NativeStaircase, inputs, 30.0, G))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@needs_native
def test_saturation_does_not_overflow() -> None:
    inputs = layer(2, 9, 2, 0.0)
    inputs[0] *= 1e6
    for result in run(NativeStaircase, inputs, 1e4, torch.ones(2, 9)):
        assert torch.isfinite(result).all()


@needs_native
def test_not_contiguous_inputs() -> None:
    inputs, G = layer(6, 10, 2, 0.0), torch.randn(10, 6).T
    inputs[0] = torch.randn(10, 6).T
    dense = [inputs[0].contiguous(), *inputs[1:]]
    for a, b in zip(run(NativeStaircase, inputs, 9.0, G),
                    run(NativeStaircase, dense, 9.0, G.contiguous()), strict=True):  # fmt: skip
        assert torch.equal(a, b)


def test_everything_works_without_the_library() -> None:
    """The fallback is real: a fresh process in which the library does not load still trains."""
    program = """
import ctypes
import torch
class Refusing(ctypes.CDLL):
    def __init__(self, *_): raise OSError("no library")
ctypes.CDLL = Refusing
import dbq
from dbq.quantizers.native import NATIVE
assert NATIVE is None
conv = torch.nn.Conv2d
net = torch.nn.Sequential(conv(3, 8, 3), conv(8, 8, 1), conv(8, 2, 1))
dbq.prepare(net, "dbq-2t-1", torch.zeros(1, 3, 8, 8))
net.train()(torch.randn(2, 3, 8, 8)).sum().backward()
print(float(net[1].weight_quantizer.t.grad.abs().sum()) > 0)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.strip() == "True", found.stderr
