"""Networks on the Hugging Face hub, by the conventions of its ModelHubMixin. Needs huggingface_hub.

    HubNetwork(model, network="resnet20", plan="resnet-2t", example_input=images).push_to_hub("me/net")
    model = HubNetwork.from_pretrained("me/net").model

What goes there is the folder of `dbq.save_pretrained`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from huggingface_hub import ModelHubMixin, snapshot_download
from torch import nn

from dbq.networks.pretrained import CARD, CONFIG, PIXELS, WEIGHTS, from_pretrained, save_pretrained


class HubNetwork(ModelHubMixin):  # type: ignore[misc, unused-ignore]  # untyped where it is absent
    """A network and what `save_pretrained` has to know of it, which it takes as keywords.

    The mixin adds `save_pretrained(directory)`, `push_to_hub(repo_id)` and `from_pretrained(id)`.
    """

    def __init__(self, model: nn.Module, **origin: Any) -> None:
        self.model, self.origin = model, origin

    def _save_pretrained(self, save_directory: Path) -> None:
        save_pretrained(self.model, save_directory, **self.origin)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        revision: str | None,
        cache_dir: str | Path | None,
        force_download: bool,
        local_files_only: bool,
        token: str | bool | None,
        **kwargs: Any,
    ) -> Self:
        folder = Path(model_id)
        if not folder.is_dir():
            folder = Path(
                snapshot_download(
                    model_id, revision=revision, cache_dir=cache_dir, token=token,
                    force_download=force_download, local_files_only=local_files_only,
                    allow_patterns=[CONFIG, WEIGHTS, PIXELS, CARD],
                )
            )  # fmt: skip
        return cls(from_pretrained(folder))
