"""foci in models of Hugging Face's transformers.

>>> import foci.transformers
>>> foci.transformers.register()
>>> model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="foci")
>>> model.set_attn_implementation("foci|local(window=1024)")  # another mechanism in its place

"foci" computes what "sdpa" computes; "foci|SPEC" any mechanism (docs/specs.md), on the
queries and keys that the model makes, positions included.
"""

from __future__ import annotations

import re
from functools import partial, wraps
from typing import Any, Optional

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import prepare_padding_mask, sdpa_mask

from ._errors import ArgumentError, SpecError, UnsupportedError
from ._spec import written
from ._torch_decode import DecodeState
from ._torch_ops import attention

__all__ = ["Cache", "register"]

PREFIX = "foci|"


def register(*specs: str) -> None:
    """Let models be made with ``attn_implementation="foci"`` and ``"foci|SPEC"``.

    Names are made known when a model is given them.  Versions of transformers that check
    them elsewhere know those of the `specs` that are named here.
    """
    _know("foci", "softmax")
    for spec in specs:
        _know(PREFIX + spec, spec)
    check = getattr(PreTrainedModel, "get_correct_attn_implementation", None)
    if check is None or hasattr(check, "foci"):
        return

    @wraps(check)
    def checked(self: Any, requested_attention: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(requested_attention, str) and requested_attention.startswith(PREFIX):
            _know(requested_attention, requested_attention[len(PREFIX):])
        return check(self, requested_attention, *args, **kwargs)

    checked.foci = True  # type: ignore[attr-defined]
    PreTrainedModel.get_correct_attn_implementation = checked  # type: ignore[method-assign]


def _know(name: str, spec: str) -> None:
    """Give a name to transformers."""
    AttentionInterface.register(name, _function(spec))
    AttentionMaskInterface.register(name, mask)


def _function(spec: str) -> Any:
    if not spec.strip():
        raise ArgumentError(f'attn_implementation="{PREFIX}": the spec is missing, for instance "foci|local(window=1024)"')
    return partial(attend, spec)


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0, *,
         attention_mask: Optional[Tensor] = None, local_size: Optional[int] = None, allow_is_causal_skip: bool = True,
         **kwargs: Any) -> Optional[Tensor]:
    """The mask of "sdpa"; none where causality, which foci counts from the last query and the
    last key, hides all that is hidden: padding that only follows a sequence is seen by padding
    alone."""
    last = isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length
    if (allow_is_causal_skip and local_size is None and last and not kwargs.get("allow_is_bidirectional_skip")
            and not torch.compiler.is_compiling()):
        padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if padding is None or trailing(padding) and (not q_offset or bool(padding.all())):
            return None

    def made(skip: bool) -> Optional[Tensor]:
        return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, attention_mask=attention_mask,
                         local_size=local_size, allow_is_causal_skip=skip, **kwargs)

    found = made(allow_is_causal_skip)
    if found is None and 1 < q_length < kv_length and not last:  # sdpa counts from the first
        found = made(False)
    return found


def trailing(valid: Tensor) -> bool:
    """Whether only ends of rows are hidden."""
    valid = valid.bool()
    return bool((valid[..., 1:] <= valid[..., :-1]).all())


def grouped(spec: str) -> list[str]:
    """The groups of a mix: what stands between + signs outside of parentheses."""
    groups, depth = [""], 0
    for letter in spec:
        depth += (letter == "(") - (letter == ")")
        if letter == "+" and not depth:
            groups.append("")
        else:
            groups[-1] += letter
    return groups


def modified(spec: str, modifier: str) -> str:
    """Every group of a spec with a modifier, but for those that have one of that name."""
    name = modifier.partition("(")[0]
    return " + ".join(group.strip() if re.search(rf"\b{name}\b", group) else f"{group.strip()} {modifier}"
                      for group in grouped(spec))


_specs: dict[Any, str] = {}


def spec_for(spec: str, dim: int, scaling: Optional[float], softcap: Optional[float], sinks: bool) -> str:
    """The spec of a module: with the scale and the other modifiers of its model."""
    key = spec, dim, scaling, softcap, sinks
    found = _specs.get(key)
    if found is None:
        found = spec
        if scaling is not None and abs(scaling - dim**-0.5) > 1e-9 * abs(scaling):
            found = modified(found, f"scale({written(float(scaling))})")
        if softcap is not None:
            found = modified(found, f"cap({written(float(softcap))})")
        if sinks:
            found = modified(found, "sink")
        _specs[key] = found
    return found


def attend(spec: str, module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor,
           attention_mask: Optional[Tensor], dropout: float = 0.0, scaling: Optional[float] = None,
           is_causal: Optional[bool] = None, position_bias: Optional[Tensor] = None, softcap: Optional[float] = None,
           s_aux: Optional[Tensor] = None, **kwargs: Any) -> tuple[Tensor, None]:
    """The attention function of a model: query (batch, heads, rows, width), key and value
    (batch, groups, rows, width); the output is (batch, rows, heads, width)."""
    if kwargs.get("cache") is not None:
        raise UnsupportedError("the keys and values are in pages (continuous batching): foci reads tensors; generate() "
                               "gives it these")
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    rows, columns = query.shape[2], key.shape[2]
    causal = bool(causal) and attention_mask is None
    spec = spec_for(spec, query.shape[3], scaling, softcap, s_aux is not None)
    options: dict[str, Any] = {}
    if s_aux is not None:
        options["params"] = {"sink": s_aux.float()}
    if dropout:
        options["dropout"] = dropout
    if position_bias is not None:
        options["bias"] = position_bias
    if attention_mask is not None:
        _hide(options, attention_mask, query)
    if rows < columns and causal and not options and not torch.is_grad_enabled():
        o = _from_state(spec, query, key, value)
        if o is not None:
            return o.transpose(1, 2), None
    try:
        o = attention(query, key, value, spec, causal=causal, **options)
    except (SpecError, UnsupportedError) as error:
        if not (causal and rows < columns and not options and not torch.is_grad_enabled()):
            raise
        try:
            o = stepped(spec, query, key, value)
        except (SpecError, UnsupportedError):
            raise error from None
        _by_steps.add(spec)
    return o.transpose(1, 2), None


# Specs that want as many queries as keys: queries that follow a cache are computed by steps.
_by_steps: set[str] = set()
_without_state: set[str] = set()


def _from_state(spec: str, query: Tensor, key: Tensor, value: Tensor) -> Optional[Tensor]:
    """What a state that has seen the keys gives; None: there is none, and others are as good."""
    if torch.compiler.is_compiling():
        return None
    layer = getattr(key, "foci_layer", None)
    if layer is not None and layer.steps > 1 and spec not in _without_state:
        try:
            return layer.step(spec, query, key, value)  # type: ignore[no-any-return]
        except (ArgumentError, SpecError, UnsupportedError):
            layer.state = None
            _without_state.add(spec)
    return stepped(spec, query, key, value) if spec in _by_steps else None


def state_for(spec: str, q: Tensor, k: Tensor, v: Tensor) -> DecodeState:
    """A state of sequences with such queries, keys and values."""
    return DecodeState(spec, q.shape[0], dtype=q.dtype, heads=q.shape[1], kv_heads=k.shape[1], dim=q.shape[3],
                       dim_v=v.shape[3], max_len=k.shape[2])


def stepped(spec: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Rows at the end of sequences, of which keys and values are all there."""
    past = k.shape[2] - q.shape[2]
    state = state_for(spec, q, k, v)
    state.append(None, k[:, :, :past], v[:, :, :past])
    return state.step(q, k[:, :, past:], v[:, :, past:])


def _hide(options: dict[str, Any], given: Tensor, query: Tensor) -> None:
    """What a mask of the model's hides, as lengths, a mask or a bias."""
    if given.dtype != torch.bool:
        options["bias"] = given if options.get("bias") is None else options["bias"] + given
        return
    if not torch.compiler.is_compiling() and given.stride(2) == 0 and given.shape[1] == 1 and query.shape[2] > 1:
        valid = given[:, 0, 0]
        if valid.shape[0] == query.shape[0] and trailing(valid):
            if not bool(valid.all()):
                options["lengths"] = (None, valid.sum(-1, dtype=torch.int32))
            return
    options["mask"] = given


class _Layer(DynamicLayer):
    """Keys and values of a layer, in memory with room for more: a step copies its own only.

    Where they grow token by token a state of foci reads them too, as attention of single
    queries to its pages is several times as fast as to tensors.
    """

    keys: Any
    values: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.room: Any = None  # tensors of keys and values, of which the first rows are used
        self.steps = 0  # calls of update() since something else than it changed what is kept
        self.state: Optional[DecodeState] = None
        self.state_of: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "room": None, "steps": 0, "state": None}  # what copies do without

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append, and return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        past, new = self.get_seq_length(), key_states.shape[-2]
        self._follow(past)
        if self.room is None or self.steps == 0 or past + new > self.room[0].shape[2] or key_states.requires_grad:
            self.room = tuple(self._roomy(old, given, past, 2 * (past + new))
                              for old, given in ((self.keys, key_states), (self.values, value_states)))
        for room, given in zip(self.room, (key_states, value_states)):
            room[:, :, past : past + new] = given
        self.keys, self.values = (room[:, :, : past + new] for room in self.room)
        self.steps += 1
        keys = self.keys[:]
        keys.foci_layer = self  # for attend(), which is given this tensor
        return keys, self.values

    def _follow(self, past: int) -> None:
        """Notice what was done to keys and values since the last update."""
        if not (past and self.room is not None and self.keys.data_ptr() == self.room[0].data_ptr()
                and self.keys.shape[0] == self.room[0].shape[0]):
            self.steps, self.state = 0, None
        elif self.state is not None and self.state.lengths[0] > past:  # cropped
            try:
                self.state.truncate(past)
            except UnsupportedError:
                self.state = None

    @staticmethod
    def _roomy(old: Tensor, given: Tensor, past: int, rows: int) -> Tensor:
        room = given.new_empty(given.shape[0], given.shape[1], rows, given.shape[3])
        if past:
            room[:, :, :past] = old
        return room

    def step(self, spec: str, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """The rows of the queries, which are the last of what is kept."""
        past = key.shape[2] - query.shape[2]
        told = spec, query.shape[0], query.shape[1], query.dtype
        if self.state is None or self.state_of != told:
            self.state, self.state_of = state_for(spec, query, key, value), told
        seen = self.state.lengths[0]
        if seen < past:
            self.state.append(None, key[:, :, seen:past], value[:, :, seen:past])
        return self.state.step(query, key[:, :, past:], value[:, :, past:])


class Cache(DynamicCache):
    """A cache of keys and values that grows in place, where DynamicCache copies all of it for
    every token, and that foci's attention decodes from by a state: several times as fast.

    >>> model.generate(**inputs, past_key_values=foci.transformers.Cache())

    It keeps keys and values twice: for the state, and for whoever asks for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer_class_to_replicate = _Layer
