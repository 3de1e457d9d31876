"""foci for PyTorch: a differentiable attention, layers, and states for generation.

>>> import foci.torch
>>> o = foci.torch.attention(q, k, v, "local(window=256) rope", causal=True)
"""

from ._torch_decode import DecodeState
from ._torch_layer import Attention
from ._torch_ops import attention

__all__ = ["Attention", "DecodeState", "attention"]
