"""Every operation of a Program. A file knows it by its place in the list: append, never reorder."""

from __future__ import annotations

from dbq.deploy.operations.add import Add
from dbq.deploy.operations.average_pool import AveragePool
from dbq.deploy.operations.channels import Channels
from dbq.deploy.operations.convolution import Convolution
from dbq.deploy.operations.lookup import Lookup
from dbq.deploy.operations.max_pool import MaxPool
from dbq.deploy.operations.operation import Operation
from dbq.deploy.operations.requantize import Requantize

OPERATIONS: tuple[type[Operation], ...] = (
    Lookup,
    Convolution,
    Add,
    Requantize,
    AveragePool,
    MaxPool,
    Channels,
)
