"""Tokenizers: text to ids and back."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _c
from ._context import Context, default_context
from ._errors import ArgumentError
from ._tensors import address, listed

lib = _c.lib
_byref = ctypes.byref
Ids = npt.NDArray[np.int32]
SPECIALS = ("pad", "bos", "eos", "unk", "mask")
PLAIN = 1
WITH_SPECIALS, END, REPLACE = 1, 2, 4


def ids_of(values: Any, name: str = "ids") -> Ids:
    """Ids in a row, int32."""
    found = listed(values, name)
    if found.size and found.dtype.kind not in "iu":
        raise ArgumentError(f"{name} has dtype {found.dtype}: ids are whole numbers")
    if found.size and (found.min() < -(2**31) or found.max() >= 2**31):
        raise ArgumentError(f"{name} has numbers beyond those of int32")
    return np.ascontiguousarray(found, np.int32)


class Tokenizer(_c.Handle):
    """A tokenizer.json, of foci's own or of byte-level BPE of Hugging Face's.

    >>> t = foci.Tokenizer.load("foci-lm")
    >>> t.decode(t.encode("It is a truth"))
    """

    __slots__ = ("context",)

    def __init__(self, handle: int, context: Context) -> None:
        self.context = context
        super().__init__(handle, lib.foci_tokenizer_free, context)

    @classmethod
    def load(cls, path: Union[str, os.PathLike[str]], context: Optional[Context] = None) -> Tokenizer:
        """Read a tokenizer.json, or the one in a folder."""
        context = context or default_context()
        return cls(_c.created(lib.foci_tokenizer_load, context.handle, context.handle, os.fsencode(path)), context)

    @classmethod
    def train(cls, kind: str, paths: Sequence[Union[str, os.PathLike[str]]], *, min_count: int = 0,
              context: Optional[Context] = None) -> Tokenizer:
        """Train on files of text: "bytes", "chars", "words", "bpe:8000"."""
        context = context or default_context()
        readers = (_c.foci_reader * max(len(paths), 1))()
        opened = 0
        try:
            for reader, path in zip(readers, paths):
                reader.size = ctypes.sizeof(_c.foci_reader)
                status = lib.foci_reader_open(context.handle, os.fsencode(path), _byref(reader))
                if status:
                    _c.fail(status, context.handle)
                opened += 1
            options = _c.foci_tokenizer_options(min_count=min_count)
            handle = _c.created(lib.foci_tokenizer_train, context.handle, context.handle, kind.encode(),
                                _byref(options), readers, len(paths))
        finally:
            for reader in readers[:opened]:
                lib.foci_reader_close(_byref(reader))
        return cls(handle, context)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write tokenizer.json at this path."""
        self._check(lib.foci_tokenizer_save(self.handle, os.fsencode(path)))

    def _check(self, status: int) -> None:
        if status:
            _c.fail(status, self.context.handle)

    def info(self) -> dict[str, Any]:
        """Kind, number of tokens, merges, the longest token, fingerprint."""
        found = _c.foci_tokenizer_info()
        self._check(lib.foci_tokenizer_get_info(self.handle, _byref(found)))
        return _c.fields(found)

    def __len__(self) -> int:
        return int(self.info()["tokens"])

    def __repr__(self) -> str:
        return f"foci.Tokenizer({self.info()['kind']}, {len(self)} tokens)"

    @property
    def specials(self) -> dict[str, int]:
        """Ids of the special tokens that there are: pad, bos, eos, unk, mask."""
        ids = {name: int(lib.foci_tokenizer_special(self.handle, i)) for i, name in enumerate(SPECIALS)}
        return {name: i for name, i in ids.items() if i >= 0}

    def encode(self, text: Union[str, bytes], plain: bool = False) -> Ids:
        """The ids of a text.  ``plain`` reads the names of special tokens as ordinary text."""
        return self.encode_all([text], plain)[0]

    def encode_all(self, lines: Sequence[Union[str, bytes]], plain: bool = False) -> list[Ids]:
        """The ids of each of several texts."""
        raw = [t.encode("utf-8", "surrogateescape") if isinstance(t, str) else bytes(t) for t in lines]
        texts = (_c.foci_string * max(len(raw), 1))(*(_c.foci_string(t, len(t)) for t in raw))
        encoder = ctypes.c_void_p()
        self._check(lib.foci_encoder_create(self.handle, _byref(encoder)))
        try:
            cap = lib.foci_encoder_most(encoder, texts, len(raw))
            ids = np.empty(max(cap, 1), np.int32)
            offsets = np.zeros(len(raw) + 1, np.int64)
            self._check(lib.foci_encode(encoder, texts, len(raw), PLAIN * plain, address(ids), cap, address(offsets)))
        finally:
            lib.foci_encoder_free(encoder)
        return [ids[a:b].copy() for a, b in zip(offsets[:-1], offsets[1:])]

    def decode(self, ids: Any, *, specials: bool = False) -> str:
        """The text of ids; what is not UTF-8 becomes U+FFFD.  ``specials`` gives special tokens
        by their names."""
        return Decoder(self, specials)(ids, end=True)

    def words(self, ids: Any) -> Ids:
        """The word of each token, from 0."""
        given = ids_of(ids)
        state, words = _c.foci_word_state(), np.empty(given.size, np.int32)
        self._check(lib.foci_token_words(self.handle, address(given), given.size, _byref(state), address(words)))
        return words


class Decoder:
    """Text piece by piece, as ids come: bytes that begin a character are held back until it is
    whole."""

    def __init__(self, tokenizer: Tokenizer, specials: bool = False) -> None:
        self._tokenizer = tokenizer
        self._flags = REPLACE | WITH_SPECIALS * specials
        self._state = _c.foci_decoder()

    def __call__(self, ids: Any, end: bool = False) -> str:
        """The text that these ids add."""
        given = ids_of(ids).ravel()
        flags = self._flags | END * end
        size, cap = ctypes.c_int64(), 16 * given.size + 64
        while True:
            text = ctypes.create_string_buffer(cap)
            self._tokenizer._check(lib.foci_decode(self._tokenizer.handle, _byref(self._state), address(given),
                                                   given.size, flags, text, cap, _byref(size)))
            if size.value <= cap:
                return text.raw[: size.value].decode("utf-8", "replace")
            cap = size.value
