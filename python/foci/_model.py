"""Models that `foci train` made: their loss, their text, their parameters."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from . import _c
from ._command import command
from ._context import Context
from ._errors import ArgumentError
from ._params import Param, Params, table
from ._tensors import Floats, address
from ._tokenizer import Decoder, Ids, Tokenizer, ids_of

lib = _c.lib
_byref = ctypes.byref
LM, MLM, TRANSLATE, CLASSIFY = range(4)
TASKS = ("lm", "mlm", "translate", "classify")
_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]
_free.restype = None


class Loss(NamedTuple):
    """The loss of a batch: nats a label, how many labels there were, and how many of them are what
    the model finds likeliest; of each label its own nats and the likeliest id.  Where gradients
    were asked for, these two are zeros, and `gradients` is that of the sum of all nats."""

    loss: float
    labels: int
    hits: int
    nats: Floats
    best: Ids
    gradients: Params


class AttentionWeights(NamedTuple):
    """The weights of one attention of a model on a text, [heads][queries][keys] (None, and why,
    where it has none), and the tokens that queries and keys are of, as they are shown."""

    name: str
    spec: str
    weights: Optional[Floats]
    queries: list[str]
    keys: list[str]
    why: Optional[str] = None


class _ModelMemory:
    """The parameters of a model, which lives as long as they are looked at."""

    def __init__(self, model: Model, start: int, count: int) -> None:
        self.model = model
        self.__array_interface__ = {"version": 3, "typestr": "<f4", "shape": (count,), "data": (start, False)}


class Model(_c.Handle):
    """A trained model, from its folder.

    >>> model = foci.Model.from_folder("foci-lm")
    >>> print(model.generate("It is a truth", 100, temperature=0.8))

    A model serves one thread at a time: others wait.
    """

    __slots__ = ("context", "_tokenizer", "folder", "config", "tensors", "_locked")

    def __init__(self, folder: Union[str, os.PathLike[str]], threads: int = 0) -> None:
        self.context = Context(threads)
        self.folder = os.fspath(folder)
        self._locked = _c.Locked()
        model, tokenizer = ctypes.c_void_p(), ctypes.c_void_p()
        status = lib.foci_model_load(self.context.handle, os.fsencode(folder), _byref(model), _byref(tokenizer))
        if status:
            _c.fail(status, self.context.handle)
        assert model.value is not None
        super().__init__(model.value, lib.foci_model_free, self.context)
        self._tokenizer = Tokenizer(tokenizer.value, self.context) if tokenizer.value else None
        self.config = self._read_config()
        self.tensors: tuple[Param, ...] = table(lib.foci_model_param_count, lib.foci_model_param, self.handle)

    @classmethod
    def from_folder(cls, folder: Union[str, os.PathLike[str]], threads: int = 0) -> Model:
        """Read a folder of `foci train`."""
        return cls(folder, threads)

    def _check(self, status: int) -> None:
        if status:
            _c.fail(status, self.context.handle)

    def _read_config(self) -> dict[str, Any]:
        config, text = _c.foci_model_config(), ctypes.c_void_p()
        self._check(lib.foci_model_get_config(self.handle, _byref(config)))
        self._check(lib.foci_config_print(self.context.handle, _byref(config), _byref(text)))
        try:
            found: dict[str, Any] = json.loads(ctypes.string_at(text.value or 0))
        finally:
            _free(text)
        return found

    def __repr__(self) -> str:
        return f"foci.Model({self.folder!r}: {self.task}, {self.params.flat.size} parameters)"

    @property
    def task(self) -> str:
        """"lm", "mlm", "translate" or "classify"."""
        return TASKS[self._raw_config().task]

    def _raw_config(self) -> Any:
        config = _c.foci_model_config()
        self._check(lib.foci_model_get_config(self.handle, _byref(config)))
        return config

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model; `foci.ArgumentError` where it has none, but ids."""
        if self._tokenizer is None:
            raise ArgumentError("the model has no tokenizer: give ids in place of text")
        return self._tokenizer

    @property
    def params(self) -> Params:
        """The parameters by name: the model's own memory."""
        count = lib.foci_model_param_floats(self.handle)
        memory = _ModelMemory(self, lib.foci_model_params(self.handle), count)
        return Params(self.tensors, np.asarray(memory))

    def save(self, folder: Union[str, os.PathLike[str]]) -> None:
        """Write the model, with its parameters as they are now, and its tokenizer."""
        tokenizer = self._tokenizer.handle if self._tokenizer else None
        self._check(lib.foci_model_save(self.handle, tokenizer, os.fsencode(folder)))

    def _encoded(self, text: Any) -> Ids:
        return self.tokenizer.encode(text) if isinstance(text, (str, bytes)) else ids_of(text)

    def _words(self, ids: Ids) -> Optional[Ids]:
        if not lib.foci_model_reads_words(self.handle):
            return None
        return np.stack([self.tokenizer.words(row) for row in np.atleast_2d(ids)]) if ids.size else ids

    # Loss

    def loss(self, ids: Any, labels: Any = None, *, lengths: Any = None, classes: Any = None, source: Any = None,
             source_lengths: Any = None, gradients: bool = False, smoothing: float = 0.0,
             dropout_seed: int = 0) -> Loss:
        """The loss of a batch of ids [batch][len], of one row of them, or of a text.

        ``labels``, shaped as ids, say what the output at each position should be, -1: nothing;
        of a language model they are the ids that follow where none are given.  ``classes``
        are those of the rows of a classifier, ``source`` what the encoder of a translation
        reads.  ``gradients`` computes those of the parameters.
        """
        given = np.atleast_2d(self._encoded(ids))
        if given.ndim != 2:
            raise ArgumentError(f"ids has shape {given.shape}: it is (batch, len), or one row")
        task = self._raw_config().task
        batch = _c.foci_batch(batch=given.shape[0], len=given.shape[1], ids=address(given))
        kept: list[Any] = [given]

        def put(name: str, values: Any, shape: tuple[int, ...]) -> Ids:
            found = ids_of(values, name)
            if found.shape != shape:
                raise ArgumentError(f"{name} has shape {found.shape}, not {shape}")
            setattr(batch, name, address(found))
            kept.append(found)
            return found

        rows, length = given.shape
        vocab = self._raw_config().vocab
        if given.size and not (0 <= given.min() and given.max() < vocab):
            raise ArgumentError(f"ids are 0 to {vocab - 1}; there is {given.min() if given.min() < 0 else given.max()}")
        lens = put("lens", np.full(rows, length) if lengths is None else lengths, (rows,))
        if lens.size and not (0 <= lens.min() and lens.max() <= length):
            raise ArgumentError(f"lengths are 0 to {length}")
        words = self._words(given)
        if words is not None:
            put("words", words, given.shape)
        if task == CLASSIFY:
            if classes is None:
                raise ArgumentError("classes= is missing: those of the rows")
            n_labels = put("classes", classes, (rows,)).size
        else:
            if labels is None:
                if task != LM:
                    raise ArgumentError(f"labels= is missing: what follows from ids alone are those of lm, not of {self.task}")
                labels = np.full(given.shape, -1, np.int32)
                labels[:, :-1] = given[:, 1:]
                labels[np.arange(length)[None] >= lens[:, None] - 1] = -1
            told = put("labels", labels, given.shape)
            if told.size and told.max() >= vocab:
                raise ArgumentError(f"labels are below {vocab}; there is {told.max()}")
            where = np.flatnonzero(told.ravel() >= 0)
            kept.append(where)
            batch.label_at = address(where)
            n_labels = where.size
        if task == TRANSLATE:
            if source is None:
                raise ArgumentError("source= is missing: the ids that the encoder reads")
            read = np.atleast_2d(ids_of(source, "source"))
            put("source_ids", read, (rows, read.shape[1]))
            put("source_lens", np.full(rows, read.shape[1]) if source_lengths is None else source_lengths, (rows,))
            batch.source_len = read.shape[1]
            told_words = self._words(read)
            if told_words is not None:
                put("source_words", told_words, read.shape)
        batch.n_labels, batch.n_tokens = n_labels, int(lens.sum())
        nats, best = np.zeros(n_labels, np.float32), np.zeros(n_labels, np.int32)
        options = _c.foci_loss_options(smoothing=smoothing, dropout_seed=dropout_seed)
        if not gradients:
            options.nats, options.best = address(nats), address(best)
        made = Params((), np.zeros(0, np.float32))
        if gradients:
            made = Params(self.tensors, np.zeros(lib.foci_model_param_floats(self.handle), np.float32))
        found = _c.foci_loss()
        with self._locked.lock:
            self._check(lib.foci_model_loss(self.handle, _byref(batch), _byref(options),
                                            address(made.flat) if gradients else None, _byref(found)))
        return Loss(found.sum / max(found.labels, 1), found.labels, found.hits, nats, best, made)

    def evaluate(self, *arguments: str) -> dict[str, Any]:
        """What ``foci eval FOLDER ARGUMENTS...`` says: model.evaluate("--data", "book.txt")."""
        found: dict[str, Any] = json.loads(command("eval", self.folder, *arguments, "--json", "--quiet"))
        return found

    def attentions(self, text: str, source: Optional[str] = None, most: int = 0) -> list[AttentionWeights]:
        """The weights of every attention on a text (in translation the target, which belongs to
        `source`), of which the first `most` tokens are read, by default 256: slow, for looking."""
        raw = [None if t is None else t.encode("utf-8", "surrogateescape") for t in (text, source)]
        strings = [_c.foci_string(t, 0 if t is None else len(t)) for t in raw]
        options = _c.foci_reading_options(text=strings[0], source=strings[1], most=most)
        made = ctypes.c_void_p()
        found: list[AttentionWeights] = []
        raised: list[BaseException] = []
        with self._locked.lock:
            self._check(lib.foci_reading_create(self.handle, self.tokenizer.handle, _byref(options), _byref(made)))
            try:
                reading = ctypes.cast(made, ctypes.POINTER(_c.foci_reading)).contents
                sides = [[side.tokens[i].decode("utf-8", "replace") for i in range(side.n)]
                         for side in reading.sides[:2]]

                def attention(_: Any, told: Any) -> int:
                    try:
                        found.append(_attention(told.contents, sides))
                        return 0
                    except BaseException as error:  # goes through C as a wish to end
                        raised.append(error)
                        return 1

                status = lib.foci_model_attentions(self.handle, reading.batch, 0, _c.ATTENTION(attention), None)
            finally:
                lib.foci_reading_free(made)
        if raised:
            raise raised[0]
        self._check(status)
        return found

    # Writing

    def generate(self, prompt: Any, count: int = 100, *, temperature: float = 0.0, top_k: int = 0, top_p: float = 0.0,
                 seed: int = 0, on_text: Optional[Callable[[str], Any]] = None) -> Any:
        """Go on from a text, or from ids, by up to `count` tokens: text from text, ids from
        ids, without the prompt.

        ``temperature`` 0 takes the likeliest token.  ``on_text`` gets each piece (of ids: each
        id) as soon as it is there; where it returns something true, that is the end.
        """
        as_text = isinstance(prompt, (str, bytes))
        ids = self._encoded(prompt).ravel()
        if not ids.size and self._tokenizer is not None and "bos" in self._tokenizer.specials:
            ids = np.array([self._tokenizer.specials["bos"]], np.int32)
        decoder = Decoder(self.tokenizer) if as_text else None
        tokenizer = self._tokenizer.handle if self._tokenizer else None
        options = _c.foci_sample_options(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed,
                                         tokenizer=tokenizer)
        found: list[Any] = []
        raised: list[BaseException] = []

        def token(_: Any, number: int) -> int:
            try:
                piece = decoder([number]) if decoder else number
                found.append(piece)
                return int(bool(on_text(piece))) if on_text else 0  # type: ignore[arg-type]
            except BaseException as error:  # goes through C as a wish to end
                raised.append(error)
                return 1

        with self._locked.lock:
            status = lib.foci_generate(self.handle, address(ids), ids.size, count, _byref(options), _c.TOKEN(token),
                                       None)
        if raised:
            raise raised[0]
        self._check(status)
        if decoder is None:
            return np.array(found, np.int32)
        found.append(decoder([], end=True))
        return "".join(found)

    def translate(self, lines: Union[str, Sequence[str]], *, beam: int = 1, penalty: Optional[float] = None,
                  longest: int = 0) -> Any:
        """The translation of a line, or of each of several."""
        tokenizer = self.tokenizer
        one = isinstance(lines, str)
        texts = [lines] if isinstance(lines, str) else list(lines)
        eos = tokenizer.specials.get("eos")
        most = int(self._raw_config().source_context) - 1
        rows = [np.append(row[:most], [] if eos is None else [eos]).astype(np.int32)
                for row in tokenizer.encode_all(texts)]
        lens = np.array([row.size for row in rows], np.int64)
        ids = np.concatenate(rows) if rows else np.empty(0, np.int32)
        options = _c.foci_translate_options(
            beam=beam, penalty=0.0 if penalty is None else penalty or -1.0, longest=longest, tokenizer=tokenizer.handle)
        found: list[str] = []
        raised: list[BaseException] = []

        def translation(_: Any, sentence: int, numbers: Any, n: int, score: float) -> int:
            try:
                found.append(tokenizer.decode(numbers[:n] if n else []).replace("\n", " ").rstrip(" "))
                return 0
            except BaseException as error:  # goes through C as a wish to end
                raised.append(error)
                return 1

        with self._locked.lock:
            status = lib.foci_translate(self.handle, len(rows), address(ids), address(lens), _byref(options),
                                        _c.TRANSLATION(translation), None)
        if raised:
            raise raised[0]
        self._check(status)
        return found[0] if one else found

    def sequences(self, batch: int = 1, longest: int = 0) -> ModelSequences:
        """Sequences of a language model, to be written token by token."""
        return ModelSequences(self, batch, longest)


def _attention(told: Any, sides: list[list[str]]) -> AttentionWeights:
    """What was told of an attention, copied."""
    weights = None
    if told.weights:
        count = told.heads * told.queries * told.keys
        flat = np.ctypeslib.as_array(ctypes.cast(told.weights, ctypes.POINTER(ctypes.c_float)), (count,))
        weights = flat.reshape(told.heads, told.queries, told.keys).copy()
    keys = [""] * told.memory + sides[told.key_side]
    return AttentionWeights(told.name.decode(), told.spec.decode(), weights, list(sides[told.query_side]), keys,
                     told.why.decode() if told.why else None)


class ModelSequences(_c.Handle):
    """Sequences that a language model reads token by token.

    >>> sequences = model.sequences(2)
    >>> logits = sequences.step([[1, 2, 3], [4]])   # after the last token of each
    """

    __slots__ = ("model", "batch")

    def __init__(self, model: Model, batch: int, longest: int) -> None:
        self.model = model
        self.batch = batch
        handle = ctypes.c_void_p()
        with model._locked.lock:
            model._check(lib.foci_sequences_create(model.handle, batch, _byref(handle)))
            assert handle.value is not None
            super().__init__(handle.value, lib.foci_sequences_free, model)
            if longest:
                model._check(lib.foci_sequences_extend(self.handle, longest))

    def step(self, ids: Sequence[Any], words: Any = None) -> Floats:
        """Append ids, a row of them (or one) for each sequence: the logits after the last,
        [batch][vocab]."""
        rows = [np.atleast_1d(ids_of(row)) for row in ids]
        if len(rows) != self.batch:
            raise ArgumentError(f"{len(rows)} rows of ids for {self.batch} sequences")
        vocab = self.model._raw_config().vocab
        flat = np.concatenate(rows) if rows else np.empty(0, np.int32)
        if flat.size and not (0 <= flat.min() and flat.max() < vocab):
            raise ArgumentError(f"ids are 0 to {vocab - 1}")
        counts = np.array([row.size for row in rows], np.int32)
        told = None if words is None else ids_of(words, "words").ravel()
        if told is not None and told.size != flat.size:
            raise ArgumentError(f"words has {told.size} entries, there are {flat.size} ids")
        logits = np.zeros((self.batch, vocab), np.float32)
        with self.model._locked.lock:
            self.model._check(lib.foci_sequences_step(self.handle, address(counts), address(flat), address(told),
                                                      address(logits)))
        return logits

    def reorder(self, origins: Sequence[int]) -> None:
        """Let sequence i go on from sequence origins[i]."""
        given = np.ascontiguousarray(origins, np.int64)
        if given.size and not (0 <= given.min() and given.max() < self.batch):
            raise ArgumentError(f"sequences are 0 to {self.batch - 1}")
        with self.model._locked.lock:
            self.model._check(lib.foci_sequences_reorder(self.handle, address(given), given.size))
        self.batch = int(given.size)

    @property
    def nbytes(self) -> int:
        """Bytes that the sequences hold of what they have seen."""
        return int(lib.foci_sequences_bytes(self.handle))
