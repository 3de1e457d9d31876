"""The library: its structs as foci/*.h declare them, its functions, its errors.

Structs carry the names of the headers.  tests/python/test_structs.py compares each with what
a C compiler makes of the header.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
import threading
import weakref
from ctypes import c_char_p, c_double, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Optional

from ._errors import CLASSES, Error

FOLDER = pathlib.Path(__file__).absolute().parent

F32, BF16, F16 = 0, 1, 2
CAUSAL, TRAIN, FAST, MASK, BIAS, MEMORY_GRADS = (1 << bit for bit in range(6))
BROADCAST = -(2**63)
KEEPS = ("frozen", "trained", "moved")
READS = {1: "q", 2: "k", 4: "v", 8: "x", 16: "words"}


def _many(kind: Any, *names: str) -> list[Any]:
    """Fields of the same type."""
    return [(name, kind) for name in names]


class Sized(ctypes.Structure):
    """A struct whose first field is its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(size=ctypes.sizeof(self), **fields)


class foci_options(Sized):
    _fields_ = [("size", c_size_t), ("threads", c_int), ("cpu", c_char_p), ("alloc", c_void_p), ("user", c_void_p),
                ("device", c_char_p)]


class foci_machine(Sized):
    _fields_ = [("size", c_size_t)] + _many(c_double, "f32_flops", "bf16_flops", "copy_bytes", "read_bytes", "working_set")


class foci_device(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("model", c_char_p), ("processors", c_int),
                ("capability", c_int), ("memory_bytes", c_size_t)]


class foci_layout(ctypes.Structure):
    _fields_ = [("batch", c_int64), ("row", c_int64), ("head", c_int64)]


class foci_list(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("count", c_int64)]


class foci_problem(Sized):
    _fields_ = (
        [("size", c_size_t), ("dtype", c_int), ("flags", c_uint32)]
        + _many(c_int64, "batch", "heads", "kv_heads", "len_q", "len_k", "dim_qk", "dim_v", "dim_x", "memory", "max_docs")
        + _many(foci_layout, "q", "k", "v", "o", "x")
        + [("mask_batch", c_int64), ("mask_heads", c_int64), ("lists", c_void_p), ("n_lists", c_int64),
           ("seed", c_uint64), ("dropout", c_double)])


class foci_list_want(Sized):
    _fields_ = [("size", c_size_t), ("name", ctypes.c_char * 64), ("count", c_int64), ("most", c_int64)]


class foci_cost(Sized):
    _fields_ = (
        [("size", c_size_t)]
        + _many(c_double, "forward_flops", "backward_flops", "forward_bytes", "backward_bytes", "pairs")
        + _many(c_int64, "tiles_full", "tiles_part", "tiles_skipped"))


class foci_param(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p), ("offset", c_int64), ("count", c_int64), ("n_dims", c_int),
                ("shape", c_int64 * 4), ("keep", c_int)]


class foci_io(Sized):
    _fields_ = (
        [("size", c_size_t)]
        + _many(c_void_p, "q", "k", "v", "x", "o", "lse", "len_q", "len_k", "docs")
        + [("n_docs", c_int64)]
        + _many(c_void_p, "words", "params", "saved", "work", "mask", "bias")
        + [("dropout_seed", c_uint64), ("stream", c_void_p)])


class foci_grads(Sized):
    _fields_ = (
        [("size", c_size_t)]
        + _many(c_void_p, "d_o", "dq", "dk", "dv", "dx", "dparams", "dbias")
        + [("skip_unread", c_int)])


class foci_step_io(Sized):
    _fields_ = (
        [("size", c_size_t), ("states", c_void_p), ("n_states", c_int64), ("tokens", c_void_p)]
        + _many(c_void_p, "q", "k", "v", "o", "params", "work", "x", "words"))


class foci_layer_problem(Sized):
    _fields_ = (
        [("size", c_size_t), ("kind", c_int), ("dtype", c_int), ("flags", c_uint32)]
        + _many(c_int64, "batch", "len", "len_source", "width", "width_source", "heads", "kv_heads", "head_dim",
                "value_dim", "memory", "max_docs", "mask_batch", "mask_heads")
        + [("lists", c_void_p), ("n_lists", c_int64), ("biases", c_int), ("weight_dropout", c_double),
           ("output_dropout", c_double), ("seed", c_uint64), ("index", c_uint64)])


class foci_layer_io(Sized):
    _fields_ = (
        [("size", c_size_t)]
        + _many(c_void_p, "x", "source", "memory", "memory_next", "residual", "y", "lens", "lens_source", "docs")
        + [("n_docs", c_int64)]
        + _many(c_void_p, "words", "params", "saved", "work", "mask", "bias")
        + [("dropout_seed", c_uint64)]
        + _many(c_void_p, "source_kv", "params_bf16", "precomputed"))


class foci_layer_grads(Sized):
    _fields_ = [("size", c_size_t)] + _many(c_void_p, "dy", "dx", "dsource", "dparams", "dbias")


class foci_layer_step_io(Sized):
    _fields_ = (
        [("size", c_size_t), ("states", c_void_p), ("n_states", c_int64)]
        + _many(c_void_p, "tokens", "x", "residual", "y", "words", "params", "work", "precomputed", "params_bf16"))


class foci_product_io(Sized):
    _fields_ = (
        [("size", c_size_t)]
        + _many(c_int64, "m", "n", "k")
        + _many(c_void_p, "a", "b", "c")
        + _many(c_int, "type_a", "type_b", "type_c")
        + _many(c_int64, "ld_a", "ld_b", "ld_c")
        + [("flags", c_uint32), ("work", c_void_p), ("bias", c_void_p), ("act", c_int), ("pre", c_void_p),
           ("residual", c_void_p), ("ld_pre", c_int64), ("ld_residual", c_int64), ("dropout", c_double),
           ("dropout_seed", c_uint64), ("packed", c_void_p)])


class foci_product_grads(Sized):
    _fields_ = (
        [("size", c_size_t), ("dc", c_void_p), ("dc_is_dz", c_int)]
        + _many(c_void_p, "da", "da_more", "db", "dbias")
        + _many(c_int64, "ld_dc", "ld_da", "ld_db")
        + [("act_a", c_int), ("gated_a", c_int), ("pre_a", c_void_p), ("ld_pre_a", c_int64), ("dropout_a", c_double),
           ("dropout_a_seed", c_uint64), ("work", c_void_p)])


class foci_estimator_io(Sized):
    _fields_ = (
        [("size", c_size_t), ("head", c_int64), ("n", c_int64)]
        + _many(c_void_p, "x", "y", "params")
        + [("draws", c_int64), ("seed", c_uint64)]
        + _many(c_void_p, "omega", "exact", "mean", "variance", "expected", "predicted", "second"))


class foci_figure(ctypes.Structure):
    _fields_ = _many(c_double, "measured", "error", "expected")


class foci_distortion(ctypes.Structure):
    _fields_ = [("dim", c_int64)] + _many(c_double, "rms", "worst", "rms_expected", "worst_expected")


class foci_orthogonality_io(Sized):
    _fields_ = [("size", c_size_t), ("group", c_int), ("width", c_int64), ("seed", c_uint64), ("draws", c_int64),
                ("x", c_void_p), ("rows", c_int64), ("figures", c_void_p), ("distortions", c_void_p),
                ("n_distortions", c_int64)]


class foci_concentration_law(Sized):
    _fields_ = [("size", c_size_t), ("kind", c_int), ("beta", c_double), ("gamma", c_double), ("dim", c_int64),
                ("q", c_void_p), ("mean", c_void_p), ("covariance", c_void_p), ("ratio", c_double),
                ("lambda", c_double), ("n", c_int64)]


class foci_string(ctypes.Structure):
    _fields_ = [("text", c_char_p), ("bytes", c_int64)]


class foci_reader(Sized):
    _fields_ = [("size", c_size_t), ("name", c_char_p)] + _many(c_void_p, "user", "read", "rewind", "close", "error")


class foci_tokenizer_options(Sized):
    _fields_ = [("size", c_size_t), ("min_count", c_int64)]


class foci_tokenizer_info(Sized):
    _fields_ = ([("size", c_size_t), ("kind", c_char_p)] + _many(c_int64, "tokens", "merges", "added", "longest")
                + [("fingerprint", c_uint64)])


class foci_decoder(Sized):
    _fields_ = [("size", c_size_t), ("held", ctypes.c_ubyte * 8), ("n_held", c_int), ("begun", c_int)]


class foci_word_state(Sized):
    _fields_ = [("size", c_size_t), ("word", c_int64), ("inside", c_int)]


class foci_batch(Sized):
    _fields_ = (
        [("size", c_size_t), ("batch", c_int64), ("len", c_int64)]
        + _many(c_void_p, "ids", "lens", "labels", "label_at", "classes", "words")
        + [("source_len", c_int64)]
        + _many(c_void_p, "source_ids", "source_lens", "source_words", "patches")
        + [("patch_width", c_int64)]
        + _many(c_void_p, "patch_rows", "patch_cols", "docs")
        + [("n_docs", c_int64)]
        + _many(c_void_p, "positions", "examples", "slices")
        + [("n_slices", c_int)]
        + _many(c_int64, "n_labels", "n_tokens", "n_words", "n_chars")
        + [("carries", c_int), ("pass", c_int64), ("index", c_int64)])


class foci_model_config(Sized):
    _fields_ = (
        [("size", c_size_t), ("task", c_int)]
        + _many(c_int64, "vocab", "source_vocab", "classes", "patch", "grid_rows", "grid_cols", "context",
                "source_context", "layers", "decoder_layers", "width", "heads", "kv_heads", "head_dim", "value_dim",
                "ffn", "conv")
        + _many(c_char_p, "attention", "encoder_attention", "decoder_attention", "cross_attention")
        + [("kind", c_int), ("blocks", c_void_p), ("n_blocks", c_int64)]
        + _many(c_int, "positions", "norm", "activation", "gated", "pooling", "untied", "no_biases")
        + _many(c_double, "dropout", "weight_dropout", "embedding_dropout")
        + [("dtype", c_int), ("seed", c_uint64), ("specials", c_int32 * 5), ("tokenizer", c_uint64),
           ("from_last", c_int), ("encoder_heads", c_int64)])


class foci_loss(Sized):
    _fields_ = [("size", c_size_t), ("sum", c_double)] + _many(c_int64, "labels", "hits", "sequences", "exact")


class foci_loss_options(Sized):
    _fields_ = [("size", c_size_t), ("smoothing", c_double), ("scale", c_double), ("dropout_seed", c_uint64),
                ("carry", c_void_p), ("calibrate", c_int64), ("advance", c_int), ("nats", c_void_p),
                ("best", c_void_p)]


class foci_sample_options(Sized):
    _fields_ = [("size", c_size_t), ("temperature", c_double), ("top_k", c_int64), ("top_p", c_double),
                ("seed", c_uint64), ("tokenizer", c_void_p)]


class foci_translate_options(Sized):
    _fields_ = [("size", c_size_t), ("beam", c_int64), ("penalty", c_double), ("longest", c_int64), ("batch", c_int64),
                ("tokenizer", c_void_p)]


class foci_reading_options(Sized):
    _fields_ = [("size", c_size_t), ("text", foci_string), ("source", foci_string), ("most", c_int64)]


class foci_reading_side(ctypes.Structure):
    _fields_ = [("n", c_int64), ("whole", c_int64), ("ids", ctypes.POINTER(c_int32)),
                ("tokens", ctypes.POINTER(c_char_p))]


class foci_reading(Sized):
    _fields_ = [("size", c_size_t), ("sides", ctypes.POINTER(foci_reading_side)), ("batch", c_void_p)]


class foci_attention_weights(Sized):
    _fields_ = (
        [("size", c_size_t), ("name", c_char_p), ("index", c_int64), ("spec", c_char_p), ("layer", c_void_p)]
        + _many(c_int64, "heads", "queries", "keys", "memory")
        + [("query_side", c_int), ("key_side", c_int), ("weights", c_void_p), ("why", c_char_p)])


class foci_heads_options(Sized):
    _fields_ = [("size", c_size_t)] + _many(c_int64, "heads", "top", "rows", "rank") + _many(c_void_p, "row", "user")


class foci_head(Sized):
    _fields_ = [("size", c_size_t), ("rows", c_int64), ("zero", c_int64), ("figures", c_double * 15)]


ATTENTION = ctypes.CFUNCTYPE(c_int, c_void_p, ctypes.POINTER(foci_attention_weights))
TOKEN = ctypes.CFUNCTYPE(c_int, c_void_p, c_int32)
TRANSLATION = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64, ctypes.POINTER(c_int32), c_int64, c_double)

# result and arguments: s status, p pointer, c text, i int, l int64_t, z size_t, u uint64_t, d double, v nothing
SIGNATURES = {
    "foci_version": "c",
    "foci_errmsg": "c p",
    "foci_ctx_create": "s pp",
    "foci_ctx_free": "v p",
    "foci_ctx_threads": "i p",
    "foci_cpu_level_count": "i p",
    "foci_cpu_level": "c pip",
    "foci_convert": "s pipipl",
    "foci_ctx_measure": "s pp",
    "foci_ctx_get_device": "s pp",
    "foci_device_alloc": "s pzp",
    "foci_device_free": "v ppz",
    "foci_device_write": "s pppz",
    "foci_device_read": "s pppz",
    "foci_device_wait": "s pp",
    "foci_problem_parse": "s pcp",
    "foci_problem_print": "i ppz",
    "foci_list_wanted_count": "s pcpp",
    "foci_list_wanted": "s pcpip",
    "foci_plan_create": "s pcpp",
    "foci_plan_free": "v p",
    "foci_plan_get_problem": "s pp",
    "foci_plan_work_bytes": "z p",
    "foci_plan_saved_bytes": "z p",
    "foci_plan_describe": "i ppz",
    "foci_plan_spec": "i ppz",
    "foci_plan_cost": "s pp",
    "foci_plan_param_floats": "l p",
    "foci_plan_param_count": "i p",
    "foci_plan_param": "s pip",
    "foci_params_init": "s pup",
    "foci_params_advance": "s ppp",
    "foci_params_calibrate": "s ppp",
    "foci_forward": "s pp",
    "foci_backward": "s ppp",
    "foci_ref_forward": "s pp",
    "foci_ref_backward": "s ppp",
    "foci_ref_weights": "s ppp",
    "foci_pool_create": "s plp",
    "foci_pool_free": "v p",
    "foci_pool_grow": "s pl",
    "foci_pool_page_count": "l p",
    "foci_pool_free_count": "l p",
    "foci_pool_page_bytes": "z p",
    "foci_state_create": "s pp",
    "foci_state_copy": "s pp",
    "foci_state_free": "v p",
    "foci_state_reset": "v p",
    "foci_state_truncate": "s pl",
    "foci_state_reserve": "s pl",
    "foci_state_len": "l p",
    "foci_state_bytes": "z p",
    "foci_state_save": "z ppz",
    "foci_state_restore": "s ppzp",
    "foci_step_work_bytes": "z plll",
    "foci_step": "s pp",
    "foci_layer_create": "s pcpp",
    "foci_layer_free": "v p",
    "foci_layer_get_problem": "s pp",
    "foci_layer_plan": "p p",
    "foci_layer_work_bytes": "z p",
    "foci_layer_saved_bytes": "z p",
    "foci_layer_describe": "i ppz",
    "foci_layer_cost": "s pp",
    "foci_layer_param_floats": "l p",
    "foci_layer_param_count": "i p",
    "foci_layer_param": "s pip",
    "foci_layer_params_init": "s pup",
    "foci_layer_frozen_get": "s pip",
    "foci_layer_frozen_set": "s pip",
    "foci_layer_forward": "s pp",
    "foci_layer_backward": "s ppp",
    "foci_layer_params_advance": "s ppp",
    "foci_layer_params_calibrate": "s ppp",
    "foci_layer_heads": "s ppp",
    "foci_layer_precompute_bytes": "z p",
    "foci_layer_precompute": "s ppp",
    "foci_layer_step_work_bytes": "z pplll",
    "foci_layer_step": "s ppp",
    "foci_ref_layer_forward": "s pp",
    "foci_ref_layer_backward": "s ppp",
    "foci_sinusoid": "s llldp",
    "foci_product_work_bytes": "z pp",
    "foci_product": "s pp",
    "foci_product_grads_work_bytes": "z ppp",
    "foci_product_backward": "s ppp",
    "foci_estimator_run": "s pp",
    "foci_softmax_errors": "s ppp",
    "foci_softmax_weight_errors": "s pplp",
    "foci_reading_create": "s pppp",
    "foci_reading_free": "v p",
    "foci_model_attentions": "s pplpp",
    "foci_head_figure_name": "c i",
    "foci_heads_create": "s ppp",
    "foci_heads_free": "v p",
    "foci_heads_add_weights": "s pplli",
    "foci_heads_get": "s plp",
    "foci_heads_likeness": "d pll",
    "foci_layer_softmax_errors": "s ppp",
    "foci_concentration": "d pl",
    "foci_layer_concentration": "s ppp",
    "foci_orthogonality_run": "s pp",
    "foci_concentration_theory": "s pp",
    "foci_concentration_quadrature": "s pp",
    "foci_concentration_sample": "s plupp",
    "foci_reader_open": "s pcp",
    "foci_reader_close": "v p",
    "foci_tokenizer_train": "s pcppip",
    "foci_tokenizer_load": "s pcp",
    "foci_tokenizer_save": "s pc",
    "foci_tokenizer_free": "v p",
    "foci_tokenizer_get_info": "s pp",
    "foci_tokenizer_special": "i pi",
    "foci_tokenizer_id": "i pcl",
    "foci_tokenizer_token": "p pip",
    "foci_encoder_create": "s pp",
    "foci_encoder_free": "v p",
    "foci_encoder_most": "l ppl",
    "foci_encode": "s ppliplp",
    "foci_token_words": "s pplpp",
    "foci_decode": "s pppliplp",
    "foci_model_free": "v p",
    "foci_model_load": "s pcpp",
    "foci_model_save": "s ppc",
    "foci_model_get_config": "s pp",
    "foci_model_param_floats": "l p",
    "foci_model_trained_floats": "l p",
    "foci_model_param_count": "i p",
    "foci_model_param": "s pip",
    "foci_model_params": "p p",
    "foci_model_reads_words": "i p",
    "foci_model_loss": "s ppppp",
    "foci_config_print": "s ppp",
    "foci_generate": "s ppllppp",
    "foci_translate": "s plppppp",
    "foci_sequences_create": "s plp",
    "foci_sequences_free": "v p",
    "foci_sequences_extend": "s pl",
    "foci_sequences_step": "s ppppp",
    "foci_sequences_reorder": "s ppl",
    "foci_sequences_start": "s pp",
    "foci_sequences_bytes": "z p",
}
TYPES = {"s": c_int, "p": c_void_p, "c": c_char_p, "i": c_int, "l": c_int64, "z": c_size_t, "u": c_uint64,
         "d": c_double, "v": None}


def _load() -> Any:
    library = ctypes.CDLL(str(FOLDER / "libfoci.so"))
    for name, signature in SIGNATURES.items():
        result, _, arguments = signature.partition(" ")
        function = getattr(library, name)
        function.restype = TYPES[result]
        function.argtypes = [TYPES[letter] for letter in arguments]
    return library


lib = _load()

# A context plans for one thread at a time.  A child has a lock of its own: the thread that
# held that of its parent is not there.
lock = threading.RLock()


class Locked:
    """What one thread at a time may use."""

    __slots__ = ("lock", "__weakref__")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _locked.add(self)


_locked: weakref.WeakSet[Locked] = weakref.WeakSet()


def _after_fork() -> None:
    global lock
    lock = threading.RLock()
    for one in _locked:
        one.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def fail(status: int, ctx: Any = None) -> None:
    """Raise what a status stands for, with the sentence of this thread's last failure."""
    message = lib.foci_errmsg(ctx) or b""
    raise CLASSES.get(status, Error)(message.decode("utf-8", "replace") or f"foci: status {status}")


def created(function: Any, ctx: Any, *arguments: Any) -> int:
    """The handle that a *_create puts behind its last argument."""
    handle = c_void_p()
    with lock:
        status = function(*arguments, ctypes.byref(handle))
    if status:
        fail(status, ctx)
    assert handle.value is not None
    return handle.value


def text(function: Any, *arguments: Any) -> str:
    """What a function writes as snprintf would."""
    length = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(length + 1)
    function(*arguments, buffer, length + 1)
    return buffer.value.decode()


class Handle:
    """An object of the library, freed when it is no longer used here.

    What it was made on, its `owner`, is freed after it: of objects that die together, as in a
    cycle or when the interpreter ends, Python says nothing of the order.
    """

    __slots__ = ("handle", "owner", "_free", "_users", "_dead", "__weakref__")
    handle: int

    def __init__(self, handle: int, free: Any = None, owner: Optional[Handle] = None) -> None:
        self.handle = handle
        self.owner = owner
        self._free = free
        self._users = 0
        self._dead = False
        if owner is not None:
            with lock:
                owner._users += 1

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._dead = True
            with lock:
                self._let_go()

    def _let_go(self) -> None:
        if self._dead and not self._users and self.handle:
            self._release()
            self.handle = 0
            if self.owner is not None:
                self.owner._users -= 1
                self.owner._let_go()

    def _release(self) -> None:
        """Free it.  Who needs more than a function overrides this: a bound method in `_free`
        would be a cycle, and the memory would wait for Python's collector."""
        self._free(self.handle)

    def __reduce__(self) -> str:
        raise TypeError(f"{type(self).__name__} cannot be pickled: make a new one in the other process")


def fields(struct: Any) -> dict[str, Any]:
    """What a struct says, without its size."""
    values = {}
    for name, *_ in struct._fields_:
        value = getattr(struct, name)
        if name != "size":
            values[name] = value.decode() if isinstance(value, bytes) else value
    return values
