"""config.json of the model that is published, in the forms in which a trainer has it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from ._errors import InvalidError


def config_text(config: Any, weights: Any) -> str | None:
    """`config` as JSON: a mapping, a configuration of transformers', the path of a config.json or of its directory. None: the
    configuration that `weights` carries as a model of transformers', if it does; else None."""
    if config is None:
        config = getattr(weights, "config", None)
        if not callable(getattr(config, "to_dict", None)):
            return None
    if isinstance(config, (str, os.PathLike)):
        path = os.fspath(config)
        with open(os.path.join(path, "config.json") if os.path.isdir(path) else path, encoding="utf-8") as file:
            return file.read()
    if callable(getattr(config, "to_dict", None)):
        config = config.to_dict()
    if not isinstance(config, Mapping):
        raise InvalidError(f"config is a {type(config).__name__}: neither a configuration, nor a mapping, nor a path", 1)
    return json.dumps(dict(config), default=str)
