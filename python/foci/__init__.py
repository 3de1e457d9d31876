"""Attention: dense, sparse, hashed, hierarchical, linear, with any positions, fast on a CPU.

>>> import foci
>>> o = foci.attention(q, k, v, "local(window=256) rope", causal=True)

`attention` and `attention_vjp` compute and differentiate; `Plan` keeps what is computed
often.  Docs: docs/python.md.
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from . import _specs
from ._analyse import (Estimate, Figure, Sampled, concentration, concentration_quadrature, concentration_sample,
                       concentration_theory, estimator, head_figures, layer_concentration, layer_softmax_errors,
                       orthogonality, softmax_errors, weights)
from ._attention import Vjp, attention, attention_vjp, clear_cache
from ._command import command
from ._context import Context, default_context, get_threads, set_threads, version
from ._errors import (ArgumentError, DeviceError, DTypeError, Error, FileError, OutOfMemoryError, PoolFullError,
                      SpecError, UnsupportedError)
from ._layer import Layer, LayerGradients, LayerState
from ._mechanisms import Mechanism, mechanisms, modifiers
from ._model import AttentionWeights, Loss, Model, ModelSequences
from ._params import Param, Params
from ._plan import Gradients, Plan, Saved
from ._product import ProductGradients, convert, product, product_vjp, sinusoid
from ._show import Picture, Report, show_model, show_pattern, show_report, show_weights
from ._spec import Modifier, Spec
from ._specs import *
from ._state import State
from ._tokenizer import Decoder, Tokenizer

__version__ = version()
__all__ = [
    "ArgumentError", "AttentionWeights", "Context", "DTypeError", "Decoder", "DeviceError", "Error", "Estimate",
    "Figure", "FileError", "Gradients", "Layer", "LayerGradients", "LayerState", "Loss", "Mechanism", "Model",
    "ModelSequences", "Modifier", "OutOfMemoryError", "Param", "Params", "Picture", "Plan", "PoolFullError",
    "ProductGradients", "Report", "Sampled", "Saved", "Spec", "SpecError", "State", "Tokenizer", "UnsupportedError", "Vjp",
    "attention", "attention_vjp", "clear_cache", "command", "concentration", "concentration_quadrature",
    "concentration_sample", "concentration_theory", "convert", "default_context", "estimator", "get_threads",
    "head_figures", "layer_concentration", "layer_softmax_errors", "mechanisms", "modifiers", "orthogonality",
    "product", "product_vjp", "set_threads", "show_model", "show_pattern", "show_report", "show_weights",
    "sinusoid", "softmax_errors", "version", "weights",
]
__all__ += _specs.__all__


def __getattr__(name: str) -> _Any:
    """foci.torch and foci.transformers, imported when they are first named."""
    if name in ("torch", "transformers"):
        return _import_module(f"foci.{name}")
    raise AttributeError(f"module 'foci' has no attribute '{name}'")


for _value in list(globals().values()):  # messages name foci.Error, not where it is written
    if isinstance(_value, type) and _value.__module__.startswith("foci."):
        _value.__module__ = "foci"
del _value
