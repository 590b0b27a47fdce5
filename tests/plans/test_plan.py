"""Plans: precedence, TOML round trip, errors that help."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dbq.errors import NoMatchError, PlanError, UnknownPlanError
from dbq.plans.plan import CLIPS, ROLES, LayerPlan, Plan
from dbq.plans.precision import FLOAT, Precision
from dbq.plans.shipped import PLANS, load_plan

of = LayerPlan.of


def test_precedence_is_name_pattern_role_default() -> None:
    plan = Plan(
        "p",
        default=of(8),
        roles={"pointwise": of("2T")},
        patterns={"blocks.*": of(4), "blocks.1.*": of(5)},
        names={"blocks.1.pw": of("1T")},
    )
    assert plan.choose("blocks.1.pw", "pointwise") == of("1T")
    assert plan.choose("blocks.1.dw", "pointwise") == of(5), "the later of two patterns"
    assert plan.choose("blocks.2.pw", "pointwise") == of(4)
    assert plan.choose("head", "pointwise") == of("2T")
    assert plan.choose("head", "conv") == of(8)


# FL, DW, PW, FC weights | first, depthwise, pointwise, last inputs | clip: the paper's table
ROWS = {
    "fp": ("32b 32b 32b 32b", "32b 32b 32b 32b", "bn"),
    "fx8-1": ("32b 8b 8b 32b", "32b 8b 8b 8b", "relu6"),
    "fx8-2": ("8b 8b 8b 8b", "8b 8b 8b 8b", "relu6"),
    "fx8-3": ("8b 8b 8b 8b", "8b 8b 8b 8b", "bn"),
    "dbq-1t": ("32b 32b 1T 32b", "32b 32b 32b 32b", "bn"),
    "dbq-2t-1": ("32b 32b 2T 32b", "32b 32b 32b 32b", "bn"),
    "dbq-2t-2": ("32b 8b 2T 32b", "32b 8b 8b 8b", "relu6"),
    "dbq-2t-3": ("32b 8b 2T 32b", "32b 8b 8b 8b", "bn"),
    "dbq-2t-4": ("8b 8b 2T 8b", "8b 8b 8b 8b", "bn"),
}


@pytest.mark.parametrize("name", ROWS)
def test_shipped_plans_are_the_rows_of_the_mobilenet_table(name: str) -> None:
    plan = load_plan(name)
    rules = [plan.choose("x", role) for role in ("first", "depthwise", "pointwise", "last")]
    weights, inputs, clip = ROWS[name]
    assert " ".join(str(rule.weight) for rule in rules) == weights
    assert " ".join(str(rule.input) for rule in rules) == inputs
    assert plan.clip == clip


@pytest.mark.parametrize("branches", [1, 2])
def test_resnet_plans(branches: int) -> None:
    float_act, eight = load_plan(f"resnet-{branches}t"), load_plan(f"resnet-{branches}t-a8")
    assert float_act.choose("x", "first").is_float
    assert float_act.choose("x", "last").is_float
    assert float_act.choose("x", "conv") == of(f"{branches}T")
    assert eight.choose("x", "first") == eight.choose("x", "last") == of(8, 8)
    assert eight.choose("x", "conv") == of(f"{branches}T", 8)


@pytest.mark.parametrize("name", PLANS)
def test_shipped_plans_survive_toml(name: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(PLANS[name].to_toml())
    assert load_plan(path) == PLANS[name]


precisions = st.sampled_from(["float", *[f"{b}b" for b in range(2, 9)], "1T", "2T", "3T", "2B"])
inputs = st.sampled_from(["float", *[f"{b}b" for b in range(2, 9)]])
text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
options = st.dictionaries(
    text, st.one_of(text, st.booleans(), st.integers(-5, 5), st.floats(-9, 9)), max_size=3
)
rules = st.builds(
    lambda w, i, m, o: LayerPlan(w, i) if w.is_float else LayerPlan(w, i, m, o),
    precisions.map(Precision.parse),
    inputs.map(Precision.parse),
    text,
    options,
)
plans = st.builds(
    Plan,
    name=text,
    default=rules,
    roles=st.dictionaries(st.sampled_from(ROLES), rules, max_size=3),
    patterns=st.dictionaries(text, rules, max_size=3),
    names=st.dictionaries(text, rules, max_size=3),
    clip=st.sampled_from(CLIPS),
    k=st.floats(0.1, 100),
)


@settings(max_examples=200, deadline=None)
@given(plans)
def test_any_plan_survives_toml(plan: Plan) -> None:
    again = Plan.from_toml(plan.to_toml())
    assert again == plan
    assert list(again.patterns) == list(plan.patterns), "the order of patterns has a meaning"


@pytest.mark.parametrize(
    ("toml", "names"),
    [
        ("clp = 'bn'", ["clp", "closest: clip"]),
        ("[roles.pointwize]\nweight='2T'", ["pointwize", "closest: pointwise"]),
        ("[default]\nweights='2T'", ["default.weights", "closest: weight"]),
        ("[default]\nweight='2X'", ["default.weight: ", "2X"]),
        ("[default]\nweight='9b'", ["default.weight: ", "9", "2 to 8"]),
        ("[default]\nweight='4T'", ["default.weight: ", "4", "1 to 3"]),
        ("[names.'a.b']\nweight='4T'", ["names.a.b.weight: ", "4"]),
        ("[default]\ninput='2T'", ["default: ", "2T"]),
        ("[default]\nmethod='dbq'", ["default: ", "'dbq'"]),
        ("[default]\nmethod=7", ["default.method = 7"]),
        ("[default]\noptions = { init = 'kmeans' }", ["default: ", "'init'"]),
        ("[default]\nweight = 8\noptions = { a = [1] }", ["default.options.a = [1]"]),
        ("clip = 'max'", ["clip = 'max'", "'relu6'"]),
        ("k = -1", ["k = -1"]),
        ("k = inf", ["k = inf"]),
        ("k = true", ["k = True"]),
        ("k = 'six'", ["k = 'six'"]),
        ("default = 8", ["default = 8"]),
        ("[default", ["not valid TOML"]),
    ],
)
def test_bad_toml_is_named(toml: str, names: list[str]) -> None:
    with pytest.raises(PlanError) as caught:
        Plan.from_toml(toml, source="my.toml")
    message = str(caught.value)
    assert [name for name in names if name not in message] == []
    assert message.count("my.toml") == 1
    assert "\n" not in message.strip()


def test_unknown_plans(tmp_path: Path) -> None:
    with pytest.raises(UnknownPlanError, match=r"dbq-2t.*closest: dbq-2t-\d"):
        load_plan("dbq-2t")
    with pytest.raises(UnknownPlanError, match=r"missing\.toml"):
        load_plan(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnknownPlanError, match=r"binary\.toml.*UTF-8"):
        load_plan(tmp_path / "binary.toml")
    (tmp_path / "broken.toml").write_text("[default")
    with pytest.raises(PlanError, match=r"broken\.toml") as caught:
        load_plan(tmp_path / "broken.toml")
    assert not isinstance(caught.value, UnknownPlanError)


def test_patterns_must_match() -> None:
    plan = Plan("p", patterns={"blocks.*.conv": of("2T")})
    plan.check_patterns(["blocks.1.conv"])
    with pytest.raises(NoMatchError, match=r"blocks\.\*\.conv.*closest: block\.1\.conv"):
        plan.check_patterns(["block.1.conv"])


def test_with_layers_leaves_a_layer_float() -> None:
    plan = load_plan("dbq-2t-4").with_layers({"fc": None, "pw": of("1T", 8)})
    assert plan.choose("fc", "last").is_float
    assert plan.choose("pw", "pointwise").weight == Precision("ternary", 1)
    assert load_plan("dbq-2t-4").names == {}, "the shipped plan is not touched"


def test_none_and_copies() -> None:
    plan = Plan("p", default=of(8), names={"fc": None})  # type: ignore[dict-item]
    assert plan.choose("fc", "last").is_float
    assert copy.deepcopy(plan) == plan == pickle.loads(pickle.dumps(plan))
    with pytest.raises(TypeError):
        plan.names["fc"] = of(4)  # type: ignore[index]


def test_precision_text() -> None:
    assert Precision.parse("32b") == Precision.parse("float") == Precision.parse(32) == FLOAT
    assert Precision.parse("2B") == Precision("binary", 2)
    assert Precision.parse("2b") == Precision.parse(2) == Precision("fixed", 2)
    for text in ("8b", "2T", "3B", "32b"):
        assert str(Precision.parse(text)) == text
