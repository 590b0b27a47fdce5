"""Your own network in your own loop: three lines quantize it, one shows what it costs.

python examples/own_network.py
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dbq
from dbq.model.layers import QuantConv2d


class MyNet(nn.Module):
    """Any CNN of Conv2d and Linear layers can be quantized and trained: functional ReLUs, residuals, ...

    `dbq.lower` is stricter: an operation it does not know, such as the multiplication in squeeze-excite,
    is an error that names it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn1 = nn.Conv2d(3, 32, 3, stride=2, bias=False), nn.BatchNorm2d(32)
        self.mix, self.bn2 = nn.Conv2d(32, 64, 1, bias=False), nn.BatchNorm2d(64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.stem(x)))
        x = F.relu(self.bn2(self.mix(x)))
        logits: Tensor = self.head(x.mean((2, 3)))
        return logits


def main() -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    model = MyNet()  # yours would be trained

    summary = dbq.prepare(model, "dbq-2t-4", images[:1])  # in place; the model stays a MyNet
    dbq.calibrate(model, [images])  # batch-norm statistics and ranges, no labels
    schedule = dbq.TemperatureSchedule(model, start=20, increment=20)

    optimizer = torch.optim.SGD(dbq.param_groups(model, weight_decay=4e-5), lr=0.01, momentum=0.9)
    for _ in range(3):
        model.train()  # soft: plain back-propagation reaches every parameter
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        schedule.step()

    print(summary)
    print(dbq.cost(model, images[:1]))
    layer = dbq.branches(model)["mix"]
    print("codes", sorted(set(layer.codes.flatten().tolist())), "zeros", layer.sparsity)
    model.eval()  # hard: weights are exactly the sum of scale times code
    assert isinstance(model.mix, QuantConv2d)
    assert torch.equal(layer.weight, model.mix.quantized_weight())


if __name__ == "__main__":
    main()
