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
from collections.abc import Callable
from functools import partial
from typing import Any, Optional

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import prepare_padding_mask, sdpa_mask

from ._errors import ArgumentError, SpecError, UnsupportedError
from ._spec import written
from ._torch_decode import DecodeState
from ._torch_ops import attention

__all__ = ["Cache", "register"]

PREFIX = "foci|"


class _Named(dict):  # type: ignore[type-arg]
    """The functions of an interface of transformers by name; any "foci|SPEC" is one."""

    def __init__(self, given: Any, make: Callable[[str], Any]) -> None:
        super().__init__(given)
        self.make = make

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or isinstance(name, str) and name.startswith(PREFIX)

    def __missing__(self, name: Any) -> Any:
        if not isinstance(name, str) or not name.startswith(PREFIX):
            raise KeyError(name)
        found = self[name] = self.make(name[len(PREFIX):])
        return found


def register() -> None:
    """Let models be made with ``attn_implementation="foci"`` and ``"foci|SPEC"``."""
    for interface, make in ((AttentionInterface, _function), (AttentionMaskInterface, lambda spec: mask)):
        if not isinstance(interface._global_mapping, _Named):
            interface._global_mapping = _Named(interface._global_mapping, make)
        interface._global_mapping["foci"] = make("softmax")


def _function(spec: str) -> Any:
    if not spec.strip():
        raise ArgumentError(f'attn_implementation="{PREFIX}": the spec is missing, for instance "foci|local(window=1024)"')
    return partial(attend, spec)


def mask(batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0, *args: Any,
         attention_mask: Optional[Tensor] = None, local_size: Optional[int] = None, allow_is_causal_skip: bool = True,
         **kwargs: Any) -> Optional[Tensor]:
    """The mask of "sdpa"; none where causality hides all that is hidden: padding that only
    follows a sequence is seen by padding alone."""
    if (allow_is_causal_skip and local_size is None and q_length == kv_length and attention_mask is not None
            and not kwargs.get("allow_is_bidirectional_skip") and not torch.compiler.is_compiling()):
        padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
        if padding is not None and trailing(padding):
            return None
    return sdpa_mask(batch_size, q_length, kv_length, q_offset, kv_offset, *args,  # type: ignore[no-any-return]
                     attention_mask=attention_mask, local_size=local_size, allow_is_causal_skip=allow_is_causal_skip,
                     **kwargs)


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
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    rows, columns = query.shape[2], key.shape[2]
    causal = bool(causal) and attention_mask is None
    if causal and 1 < rows < columns:  # an empty static cache
        key, value = key[:, :, :rows], value[:, :, :rows]
        if position_bias is not None:
            position_bias = position_bias[..., :rows]
        columns = rows
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
    if rows < columns and spec in _by_steps and "mask" not in options:
        return stepped(spec, query, key, value).transpose(1, 2), None
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


def stepped(spec: str, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Rows at the end of sequences, of which keys and values are all there."""
    batch, heads, rows, dim = q.shape
    past = k.shape[2] - rows
    state = DecodeState(spec, batch, dtype=q.dtype, heads=heads, kv_heads=k.shape[1], dim=dim, dim_v=v.shape[3],
                        max_len=k.shape[2])
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
    """Keys and values of a layer in memory with room for more: a step copies its own only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.room: Any = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Append, and return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        past, new = self.get_seq_length(), key_states.shape[-2]
        if not self._fits(past, new, key_states):
            self.room = tuple(self._roomy(old, given, past, 2 * (past + new))
                              for old, given in ((self.keys, key_states), (self.values, value_states)))
        for room, given in zip(self.room, (key_states, value_states)):
            room[:, :, past : past + new] = given
        self.keys, self.values = (room[:, :, : past + new] for room in self.room)
        return self.keys, self.values

    def _fits(self, past: int, new: int, given: Tensor) -> bool:
        """Whether what is kept is the beginning of the room, and the room suffices."""
        return (self.room is not None and past > 0 and not given.requires_grad
                and self.keys.data_ptr() == self.room[0].data_ptr() and self.keys.shape[0] == self.room[0].shape[0]
                and past + new <= self.room[0].shape[2])

    @staticmethod
    def _roomy(old: Tensor, given: Tensor, past: int, rows: int) -> Tensor:
        room = given.new_empty(given.shape[0], given.shape[1], rows, given.shape[3])
        if past:
            room[:, :, :past] = old
        return room


class Cache(DynamicCache):
    """A cache of keys and values that grows in place, where DynamicCache copies all of it for
    every token.

    >>> model.generate(**inputs, past_key_values=foci.transformers.Cache())
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer_class_to_replicate = _Layer
