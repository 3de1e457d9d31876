"""Attention: dense, sparse, hashed, hierarchical, linear, with any positions, fast on a CPU.

>>> import foci
>>> o = foci.attention(q, k, v, "local(window=256) rope", causal=True)

`attention` and `attention_vjp` compute and differentiate; `Plan` keeps what is computed
often.  Docs: docs/python.md.
"""

from ._analyse import (Estimate, Figure, Sampled, concentration, concentration_quadrature, concentration_sample,
                       concentration_theory, estimator, layer_concentration, layer_softmax_errors, orthogonality,
                       softmax_errors, weights)
from ._attention import Vjp, attention, attention_vjp, clear_cache
from ._command import command
from ._context import Context, default_context, get_threads, set_threads, version
from ._errors import (ArgumentError, DeviceError, DTypeError, Error, FileError, OutOfMemoryError, PoolFullError,
                      SpecError, UnsupportedError)
from ._layer import Layer, LayerGradients, LayerState
from ._mechanisms import Mechanism, mechanisms, modifiers
from ._model import Loss, Model, ModelSequences
from ._params import Param, Params
from ._plan import Gradients, Plan
from ._product import ProductGradients, convert, product, product_vjp, sinusoid
from ._show import Picture, Report, show_pattern, show_report, show_weights
from ._spec import Modifier, Spec
from ._state import State
from ._specs import *
from ._tokenizer import Decoder, Tokenizer

__version__ = version()

for _value in list(globals().values()):  # messages name foci.Error, not where it is written
    if isinstance(_value, type) and _value.__module__.startswith("foci."):
        _value.__module__ = "foci"
del _value
