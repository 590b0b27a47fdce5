"""Temperature schedule."""

from __future__ import annotations

from typing import Any

import pytest

import dbq
from dbq.errors import DbqError
from tests.model.small import IMAGE, network


class TestTemperatureSchedule:
    def test_paper_schedule(self) -> None:
        net = network()
        dbq.prepare(net, "dbq-1t", IMAGE)
        schedule = dbq.TemperatureSchedule(net, start=5, increment=2.5)
        for epoch in range(50):
            assert net[3].weight_quantizer.temperature == 5 + 2.5 * epoch
            schedule.step()

    def test_state_and_checkpoint(self) -> None:
        net = network()
        dbq.prepare(net, "dbq-1t", IMAGE)
        schedule = dbq.TemperatureSchedule(net, start=5, increment=2.5)
        schedule.step()
        other = network()
        dbq.prepare(other, "dbq-1t", IMAGE)
        resumed = dbq.TemperatureSchedule(other, start=1, increment=1)
        resumed.load_state_dict(schedule.state_dict())
        resumed.step()
        assert other[3].weight_quantizer.temperature == 10
        assert "3.weight_quantizer.temperature" in net.state_dict()

    def test_exponential(self) -> None:
        net = network()
        dbq.prepare(net, "dbq-1t", IMAGE)
        schedule = dbq.TemperatureSchedule(net, start=10, end=160, epochs=4)
        found = []
        for _ in range(5):
            assert net[3].weight_quantizer.temperature == schedule.temperature
            found.append(schedule.temperature)
            schedule.step()
        assert found == [10, 20, 40, 80, 160]
        resumed = dbq.TemperatureSchedule(net, start=1, increment=1)
        schedule.move_to(2)
        resumed.load_state_dict(schedule.state_dict())
        assert resumed.temperature == 40

    @pytest.mark.parametrize("wrong", [
        {"end": 5, "epochs": 4}, {"end": 50}, {"end": 50, "epochs": 4, "increment": 1.0},
    ])  # fmt: skip
    def test_exponential_errors(self, wrong: dict[str, Any]) -> None:
        net = network()
        dbq.prepare(net, "dbq-1t", IMAGE)
        with pytest.raises(DbqError, match="end >= start"):
            dbq.TemperatureSchedule(net, start=10, **wrong)

    def test_errors(self) -> None:
        with pytest.raises(DbqError, match=r"dbq\.prepare"):
            dbq.TemperatureSchedule(network(), 5, 2.5)
        net = network()
        dbq.prepare(net, "dbq-1t", IMAGE)
        with pytest.raises(DbqError, match="start"):
            dbq.TemperatureSchedule(net, 0, 1)
