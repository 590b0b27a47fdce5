"""Every operation of a Program. A file knows it by its place in the list: append, never reorder."""

from __future__ import annotations

from dbq.deploy.operations.add import Add
from dbq.deploy.operations.average_pool import AveragePool, MeanPool
from dbq.deploy.operations.bilinear import Bilinear
from dbq.deploy.operations.channels import Channels
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.curve import Curve
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.max_pool import MaxPool
from dbq.deploy.operations.multiply import Multiply
from dbq.deploy.operations.operation import Operation
from dbq.deploy.operations.pixels import Pixels
from dbq.deploy.operations.requantize import Requantize

OPERATIONS: tuple[type[Operation], ...] = (
    Lookup,
    Convolution,
    Add,
    Requantize,
    AveragePool,
    MaxPool,
    Channels,
    Curve,
    Multiply,
    Pixels,
    Bilinear,
    MeanPool,
)
