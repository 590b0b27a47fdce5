"""Costs: run the model once and write down what happens (watch, census), apply the rules, print.

watch -> census (rows) -> [assignment: a plan's precisions onto rows] -> rules -> rendering
"""

from dbq.costs.rules import Cost, Totals, cost, plan_cost

__all__ = ["Cost", "Totals", "cost", "plan_cost"]
