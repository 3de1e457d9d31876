"""The few calls of libfoci that the comparison needs, by ctypes.

Structs mirror include/foci/foci.h and layer.h; each carries its size, so fields the header has
gained at the end since are left at their defaults.
"""
import ctypes as c

OK = 0
F32, BF16 = 0, 1
CAUSAL, TRAIN, FAST = 1, 2, 4
TURN_A, TURN_B = 1, 2


class Options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("threads", c.c_int), ("cpu", c.c_char_p),
                ("alloc", c.c_void_p), ("user", c.c_void_p)]


class Machine(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [
        (name, c.c_double)
        for name in ("f32_flops", "bf16_flops", "copy_bytes", "read_bytes",
                     "working_set")]


class Layout(c.Structure):
    _fields_ = [(name, c.c_int64) for name in ("batch", "row", "head")]


class List(c.Structure):
    _fields_ = [("name", c.c_char_p), ("data", c.POINTER(c.c_int64)),
                ("count", c.c_int64)]


def lists(named):
    """{"layout": [0, 1, ...]} as the array a problem takes; None for none."""
    out = (List * len(named))()
    for item, (name, values) in zip(out, named.items()):
        item.name, item.count = name.encode(), len(values)
        item.data = (c.c_int64 * len(values))(*values)
    return out if named else None


class Cost(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [
        (name, c.c_double)
        for name in ("forward_flops", "backward_flops", "forward_bytes",
                     "backward_bytes", "pairs")
    ] + [(name, c.c_int64) for name in ("tiles_full", "tiles_part", "tiles_skipped")]


class Problem(c.Structure):
    _fields_ = [("size", c.c_size_t), ("dtype", c.c_int), ("flags", c.c_uint32)] + [
        (name, c.c_int64)
        for name in ("batch", "heads", "kv_heads", "len_q", "len_k", "dim_qk",
                     "dim_v", "dim_x", "memory", "max_docs")
    ] + [(name, Layout) for name in "qkvox"] + [
        ("mask_batch", c.c_int64), ("mask_heads", c.c_int64),
        ("lists", c.POINTER(List)), ("n_lists", c.c_int64), ("seed", c.c_uint64),
        ("dropout", c.c_double)]


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


class StepIO(c.Structure):
    _fields_ = [("size", c.c_size_t), ("states", c.POINTER(c.c_void_p)),
                ("n_states", c.c_int64), ("tokens", c.POINTER(c.c_int32))] + [
        (name, c.c_void_p) for name in ("q", "k", "v", "o", "params", "work")]


class ProductIO(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [
        (name, c.c_int64) for name in "mnk"
    ] + [(name, c.c_void_p) for name in "abc"] + [
        (name, c.c_int) for name in ("type_a", "type_b", "type_c")
    ] + [(name, c.c_int64) for name in ("ld_a", "ld_b", "ld_c")] + [
        ("flags", c.c_uint32), ("work", c.c_void_p)]


class LayerProblem(c.Structure):
    _fields_ = [("size", c.c_size_t), ("kind", c.c_int), ("dtype", c.c_int),
                ("flags", c.c_uint32)] + [
        (name, c.c_int64)
        for name in ("batch", "len", "len_source", "width", "width_source", "heads",
                     "kv_heads", "head_dim", "value_dim", "memory", "max_docs",
                     "mask_batch", "mask_heads")
    ] + [("lists", c.POINTER(List)), ("n_lists", c.c_int64), ("biases", c.c_int),
         ("dropout", c.c_double), ("output_dropout", c.c_double), ("seed", c.c_uint64),
         ("index", c.c_uint64)]


class LayerIO(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [
        (name, c.c_void_p)
        for name in ("x", "source", "memory", "memory_next", "residual", "y", "lens",
                     "lens_source", "docs")
    ] + [("n_docs", c.c_int64)] + [
        (name, c.c_void_p) for name in ("words", "params", "saved", "work")]


class LayerGrads(c.Structure):
    _fields_ = [("size", c.c_size_t)] + [
        (name, c.c_void_p) for name in ("dy", "dx", "dsource", "dparams")]


class Param(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("offset", c.c_int64),
                ("count", c.c_int64), ("n_dims", c.c_int), ("shape", c.c_int64 * 4),
                ("keep", c.c_int)]


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
        self.level = self.chosen_level()

    def check(self, status):
        if status != OK:
            raise Error(self.lib.foci_errmsg(self.ctx).decode())

    def chosen_level(self):
        self.lib.foci_cpu_level.restype = c.c_char_p
        state, level = c.c_char_p(), 0
        while name := self.lib.foci_cpu_level(self.ctx, level, c.byref(state)):
            if state.value == b"chosen":
                return name.decode()
            level += 1
        raise Error("no CPU level is chosen")

    def measure(self, working_set=0):
        """Memory by going through so many bytes over and over; 0: more than caches hold."""
        machine = sized(Machine, working_set=working_set)
        self.check(self.lib.foci_ctx_measure(self.ctx, c.byref(machine)))
        return machine

    def plan(self, spec, problem):
        return Plan(self, spec, problem)

    def product_work(self, io):
        self.lib.foci_product_work_bytes.restype = c.c_size_t
        return self.lib.foci_product_work_bytes(self.ctx, c.byref(io))

    def product(self, io):
        self.check(self.lib.foci_product(self.ctx, c.byref(io)))

    def layer(self, spec, problem):
        return Layer(self, spec, problem)


class Plan:
    def __init__(self, context, spec, problem):
        self.context, self.lib = context, context.lib
        self.plan = c.c_void_p()
        context.check(self.lib.foci_plan_create(
            context.ctx, spec.encode(), c.byref(problem), c.byref(self.plan)))
        self.work_bytes = self.lib.foci_plan_work_bytes(self.plan)
        self.saved_bytes = self.lib.foci_plan_saved_bytes(self.plan)

    def costs(self):
        cost = sized(Cost)
        self.context.check(self.lib.foci_plan_cost(self.plan, c.byref(cost)))
        return cost

    def cost(self, backward):
        """(FLOP, bytes) of one pass."""
        cost = self.costs()
        if backward:
            return cost.backward_flops, cost.backward_bytes
        return cost.forward_flops, cost.forward_bytes

    def density(self):
        """Tiles computed over tiles there are."""
        cost = self.costs()
        done = cost.tiles_full + cost.tiles_part
        return done / (done + cost.tiles_skipped)

    def params(self, seed):
        """All parameters, drawn."""
        self.lib.foci_plan_param_floats.restype = c.c_int64
        floats = (c.c_float * self.lib.foci_plan_param_floats(self.plan))()
        self.context.check(self.lib.foci_params_init(self.plan, c.c_uint64(seed), floats))
        self.floats = floats
        return c.addressof(floats)

    def close(self):
        self.lib.foci_plan_free(self.plan)

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


class Layer:
    """A layer; its parameters are drawn into `floats`, which others may write to."""

    def __init__(self, context, spec, problem):
        self.context, self.lib = context, context.lib
        for name in ("foci_layer_work_bytes", "foci_layer_saved_bytes"):
            getattr(self.lib, name).restype = c.c_size_t
        self.lib.foci_layer_param_floats.restype = c.c_int64
        self.layer = c.c_void_p()
        context.check(self.lib.foci_layer_create(
            context.ctx, spec.encode(), c.byref(problem), c.byref(self.layer)))
        self.work_bytes = self.lib.foci_layer_work_bytes(self.layer)
        self.saved_bytes = self.lib.foci_layer_saved_bytes(self.layer)
        self.n_floats = self.lib.foci_layer_param_floats(self.layer)
        self.floats = (c.c_float * self.n_floats)()
        context.check(self.lib.foci_layer_params_init(self.layer, c.c_uint64(1), self.floats))

    def tensors(self):
        """(name, offset in the floats, shape) of all that is stored."""
        for i in range(self.lib.foci_layer_param_count(self.layer)):
            param = sized(Param)
            self.context.check(self.lib.foci_layer_param(self.layer, i, c.byref(param)))
            if param.offset >= 0:
                yield param.name.decode(), param.offset, list(param.shape[:param.n_dims])

    def describe(self):
        text = c.create_string_buffer(8192)
        self.lib.foci_layer_describe(self.layer, text, c.c_size_t(len(text)))
        return text.value.decode().strip()

    def forward(self, io):
        if self.lib.foci_layer_forward(self.layer, c.byref(io)) != OK:
            raise Error("the layer refused its arguments")

    def backward(self, io, grads):
        if self.lib.foci_layer_backward(self.layer, c.byref(io), c.byref(grads)) != OK:
            raise Error("the layer's backward refused its arguments")

    def close(self):
        self.lib.foci_layer_free(self.layer)


class Decoder:
    """States of `n` sequences on a pool of their own."""

    def __init__(self, plan, n, pages):
        self.plan, self.lib, self.n = plan, plan.lib, n
        self.lib.foci_step_work_bytes.restype = c.c_size_t
        self.pool = c.c_void_p()
        plan.context.check(self.lib.foci_pool_create(
            plan.plan, c.c_int64(pages), c.byref(self.pool)))
        self.states = (c.c_void_p * n)()
        for i in range(n):
            state = c.c_void_p()
            plan.context.check(self.lib.foci_state_create(self.pool, c.byref(state)))
            self.states[i] = state.value

    def work_bytes(self, tokens, longest):
        return self.lib.foci_step_work_bytes(self.pool, c.c_int64(self.n), c.c_int64(tokens),
                                        c.c_int64(longest))

    def step(self, k, v, tokens=1, q=None, o=None, work=None):
        counts = (c.c_int32 * self.n)(*[tokens] * self.n)
        io = sized(StepIO, states=self.states, n_states=self.n, tokens=counts, q=q, k=k,
                   v=v, o=o, work=work)
        self.plan.context.check(self.lib.foci_step(self.pool, c.byref(io)))

    def truncate(self, length):
        for state in self.states:
            self.lib.foci_state_truncate(c.c_void_p(state), c.c_int64(length))

    def close(self):
        for state in self.states:
            self.lib.foci_state_free(c.c_void_p(state))
        self.lib.foci_pool_free(self.pool)
