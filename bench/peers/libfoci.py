"""The few calls of libfoci that the comparison needs, by ctypes.

Structs mirror include/foci/foci.h; each carries its size, so fields the header has
gained at the end since are left at their defaults.
"""
import ctypes as c

OK = 0
F32, BF16 = 0, 1
CAUSAL, TRAIN, FAST = 1, 2, 4


class Options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("threads", c.c_int), ("cpu", c.c_char_p),
                ("alloc", c.c_void_p), ("user", c.c_void_p)]


class Machine(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [
        (name, c.c_double)
        for name in ("f32_flops", "bf16_flops", "copy_bytes", "read_bytes")]


class Layout(c.Structure):
    _fields_ = [(name, c.c_int64) for name in ("batch", "row", "head")]


class Problem(c.Structure):
    _fields_ = [("size", c.c_size_t), ("dtype", c.c_int), ("flags", c.c_uint32)] + [
        (name, c.c_int64)
        for name in ("batch", "heads", "kv_heads", "len_q", "len_k", "dim_qk",
                     "dim_v", "dim_x", "memory", "max_docs")
    ] + [(name, Layout) for name in "qkvox"] + [
        ("mask_batch", c.c_int64), ("mask_heads", c.c_int64)]


class IO(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [
        (name, c.c_void_p)
        for name in ("q", "k", "v", "x", "o", "lse", "len_q", "len_k", "docs")
    ] + [("n_docs", c.c_int64)] + [
        (name, c.c_void_p)
        for name in ("words", "params", "saved", "work", "mask", "bias")]


class Grads(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [
        (name, c.c_void_p) for name in ("d_o", "dq", "dk", "dv", "dx", "dparams")]


def sized(kind, **fields):
    return kind(size=c.sizeof(kind), **fields)


class Error(Exception):
    pass


class Context:
    """A library with one context of `threads` threads."""

    def __init__(self, path, threads):
        self.lib = lib = c.CDLL(path)
        lib.foci_errmsg.restype = c.c_char_p
        lib.foci_version.restype = c.c_char_p
        for name in ("foci_plan_work_bytes", "foci_plan_saved_bytes"):
            getattr(lib, name).restype = c.c_size_t
        self.ctx = c.c_void_p()
        self.check(lib.foci_ctx_create(c.byref(sized(Options, threads=threads)),
                                       c.byref(self.ctx)))
        self.threads = lib.foci_ctx_threads(self.ctx)
        self.version = lib.foci_version().decode()

    def check(self, status):
        if status != OK:
            raise Error(self.lib.foci_errmsg(self.ctx).decode())

    def measure(self):
        machine = sized(Machine)
        self.check(self.lib.foci_ctx_measure(self.ctx, c.byref(machine)))
        return machine

    def plan(self, spec, problem):
        return Plan(self, spec, problem)


class Plan:
    def __init__(self, context, spec, problem):
        self.context, self.lib = context, context.lib
        self.plan = c.c_void_p()
        context.check(self.lib.foci_plan_create(
            context.ctx, spec.encode(), c.byref(problem), c.byref(self.plan)))
        self.work_bytes = self.lib.foci_plan_work_bytes(self.plan)
        self.saved_bytes = self.lib.foci_plan_saved_bytes(self.plan)

    def describe(self):
        text = c.create_string_buffer(4096)
        self.lib.foci_plan_describe(self.plan, text, c.c_size_t(len(text)))
        return text.value.decode().strip()

    def forward(self, io):
        if self.lib.foci_forward(self.plan, c.byref(io)) != OK:
            raise Error("forward refused its arguments")

    def backward(self, io, grads):
        if self.lib.foci_backward(self.plan, c.byref(io), c.byref(grads)) != OK:
            raise Error("backward refused its arguments")
