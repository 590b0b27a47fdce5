"""The model card of a quantized network: Markdown with the front matter that hubs index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dbq.costs.rules import Cost
from dbq.support.text import short


def card(config: Mapping[str, Any], counted: Cost, bytes: int, measured: Mapping[str, Any]) -> str:
    """`config` as save_pretrained writes it, costs of one inference, and what the user measured."""
    plan, image = config["plan"]["name"], "x".join(map(str, config["image"]))
    total = counted.to_json()["total"]
    rows = {
        **measured,
        "full adders of one inference (C_C)": short(total["C_C"]),
        "of these, with zero weights skipped (C_S)": short(total["C_S"]),
        "bits of weights and activations (C_R)": short(total["C_R"]),
        "bits of the model (C_M)": short(total["C_M"]),
        "model.safetensors, for training on": f"{short(bytes)}B",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    return f"""---
library_name: dbq
pipeline_tag: image-classification
tags: [quantization, ternary, {config["network"].replace(":", "-")}]
---

# {config["network"]}, {plan}

{config["network"]} for images of {image}, quantized by the plan `{plan}` of dbq {config["dbq_version"]}.

| measured or counted | |
|---|---|
{table}

```python
import dbq

model = dbq.from_pretrained("this folder")  # a plain torch module; no file here runs code
```

`config.json` names the network, the plan and the size of the images; `preprocessor_config.json` says how
pixels become its input. `dbq.lower` makes a program of it that runs without torch."""
