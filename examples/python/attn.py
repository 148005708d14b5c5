"""attn.h from Python: attention on the CPU with masks that are right by construction, over NumPy arrays.

    import attn, numpy as np
    q, k, v = (np.random.randn(1, 4, 2, 8).astype(np.float32) for _ in range(3))    # [batch][row][head][x]
    out = attn.sdpa(q, k, v, causal=True)
    attn.show(attn.causal(4))

One file, on ctypes and NumPy alone: copy it. The first use compiles attn.h (beside this file, or two folders up) with cc into
a cache folder, which takes 10 to 20 seconds; without attn.h an installed libattn.so is taken (make install). Variables of the
environment: ATTN_LIBRARY, a libattn.so to be taken; ATTN_H, the header; CC.

Arrays are float32 and are not copied where the numbers of a head lie side by side, whatever the other strides. Torch tensors
on the CPU are taken as they are, and answered with tensors. What is wrong is said in a sentence, by attn.Error.
"""
import ctypes
import ctypes.util
import hashlib
import os
import subprocess
import sys
import tempfile

import numpy as np

__all__ = ["sdpa", "Cache", "causal", "window", "padding", "cross", "lengths", "merge", "show", "text", "backends", "Error"]

# ---- the structs of attn.h: names and types in their order; attn_struct_size has the sizes ----------------------------
VERSION = 10000
_TYPES = {"p": ctypes.c_void_p, "s": ctypes.c_char_p, "i": ctypes.c_int, "f": ctypes.c_float, "z": ctypes.c_size_t, "d": ctypes.c_ssize_t}


def _struct(name, members):
    fields = []
    for member in members.split():
        field, kind = member.split(":")
        kind, _, times = kind.partition("*")
        kind = _TYPES.get(kind) or globals()[kind]
        fields.append((field, kind * int(times) if times else kind))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


_Exec = _struct("attn_exec", "pool:p width:i run:p")
_Args = _struct("attn_args", """
    out:p q:p k:p v:p kv:p batch:i n_q:i n_k:i heads:i kv_heads:i head_dim:i v_head_dim:i layout:i
    q_stride:d*3 k_stride:d*3 v_stride:d*3 out_stride:d*3 scale:f softcap:f causal:i align:i q_pos:i q_pos_each:p
    window_left:i window_right:i q_lengths:p k_starts:p k_lengths:p q_cum:p k_cum:p k_map:p k_batch:i
    mask:p mask_shape:i*3 mask_stride:d*3 keep:p keep_shape:i*3 keep_stride:d*3 bias:p bias_shape:i*3 bias_stride:d*3
    alibi_slopes:p rel_bias:p rel_extent:i sinks:p weights:p weights_heads:p n_weights_heads:i weights_stage:i lse:p masked_rows:p
    carry_in:p carry_out:p parts:i exec:p backend:i work:p work_size:z user:p""")
_KvArgs = _struct("attn_kv_args", """
    batch:i kv_heads:i head_dim:i v_head_dim:i capacity:i pages:i k_storage:i v_storage:i v_in_k:i
    mem:p mem_size:z user:p""")
_Kv = _struct("attn_kv", """
    shape:_KvArgs lengths:p free_pages:i page_keys:i entry_pages:i page_size:z page_v:z k_row:z v_row:z
    k_scales:z v_scales:z gaps:p table:p holders:p idle:p scratch:p memory:p bytes:z own:p""")
_STRUCTS = (_Exec, _Args, _KvArgs, _Kv)
_STORAGE = {"f32": 0, "f16": 1, "bf16": 2}
_FULL = -15


class Error(ValueError):
    """What attn.h, or this file, refuses; status is its number (attn_status), 0 where this file did."""

    def __init__(self, sentence, status=0):
        super().__init__(sentence)
        self.status = status


# ---- the library -------------------------------------------------------------------------------------------------------
def _header():
    here = os.path.dirname(os.path.abspath(__file__))
    places = [os.environ.get("ATTN_H"), os.path.join(here, "attn.h"), os.path.join(here, "..", "..", "attn.h")]
    return next((os.path.abspath(p) for p in places if p and os.path.isfile(p)), None)


def _build(header):
    """Compiles the header into the cache folder, once for each of its versions."""
    compiler = os.environ.get("CC", "cc").split()
    flags = ["-O2", "-shared", "-fPIC", "-DATTN_THREADS", "-pthread"]
    with open(header, "rb") as f:
        key = hashlib.sha256(f.read() + repr(compiler + flags).encode()).hexdigest()[:16]
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "attn")
    library = os.path.join(cache, "libattn-%s.so" % key)
    if not os.path.exists(library):
        print("attn.py: compiling %s, once: 10 to 20 seconds" % header, file=sys.stderr)
        os.makedirs(cache, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:          # concurrent builds leave no partial file
            source, made = os.path.join(folder, "attn.c"), os.path.join(folder, "libattn.so")
            with open(source, "w") as f:
                f.write('#define ATTN_IMPLEMENTATION\n#include "attn.h"\n')
            subprocess.run(compiler + flags + ["-I", os.path.dirname(header), source, "-o", made], check=True)
            os.replace(made, library)
    return library


def _load():
    library = os.environ.get("ATTN_LIBRARY")
    header = _header()
    if not library:
        library = _build(header) if header else ctypes.util.find_library("attn")
    if not library:
        raise ImportError("attn.py finds neither attn.h (beside it, or ATTN_H) nor an installed libattn.so (or ATTN_LIBRARY)")
    lib = ctypes.CDLL(library)
    if lib.attn_version() // 100 != VERSION // 100:
        raise ImportError("attn.py is of version %d, and %s of version %d: take both from one place"
                          % (VERSION, library, lib.attn_version()))
    for name, result, arguments in (
            ("status_str", ctypes.c_char_p, "i"), ("struct_size", ctypes.c_size_t, "s"),
            ("sdpa", ctypes.c_int, "p"), ("check", ctypes.c_int, "ppz"),
            ("backends", ctypes.c_int, "pi"), ("backend_name", ctypes.c_char_p, "i"),
            ("mask_causal", ctypes.c_int, "piii"), ("mask_window", ctypes.c_int, "piiiii"),
            ("mask_padding", ctypes.c_int, "ppiii"), ("mask_cross", ctypes.c_int, "ppiiii"),
            ("mask_lengths", ctypes.c_int, "ppiii"), ("mask_merge", ctypes.c_int, "pipiii"),
            ("mask_format", ctypes.c_size_t, "pzpiipp"),
            ("kv_init", ctypes.c_int, "pp"), ("kv_free", None, "p"), ("kv_append", ctypes.c_int, "pippid"),
            ("kv_truncate", ctypes.c_int, "pii"), ("kv_forget", ctypes.c_int, "piii"), ("kv_reorder", ctypes.c_int, "pp"),
            ("kv_copy", ctypes.c_int, "piii"), ("kv_read", ctypes.c_int, "piiipp"), ("kv_saved", ctypes.c_size_t, "pi"),
            ("kv_save", ctypes.c_int, "pipz"), ("kv_load", ctypes.c_int, "pipz")):
        function = getattr(lib, "attn_" + name)
        function.restype, function.argtypes = result, [_TYPES[t] for t in arguments]
    for struct in _STRUCTS:
        size = lib.attn_struct_size(struct.__name__.encode())
        if size != ctypes.sizeof(struct):
            raise ImportError("%s has %d bytes in attn.py, and %d in %s: take both from one place"
                              % (struct.__name__, ctypes.sizeof(struct), size, library))
    return lib


_lib = None
_pools = {}


def library():
    """The library (a ctypes.CDLL), loaded at first use."""
    global _lib
    if _lib is None:
        _lib = _load()
    return _lib


def _pool(threads):
    """An attn_exec of so many threads; it lives as long as the program."""
    if threads not in _pools:
        lib = library()
        lib.attn_pool_create.restype, lib.attn_pool_exec.restype = ctypes.c_void_p, _Exec
        pool = lib.attn_pool_create(ctypes.c_int(threads))
        if not pool:
            raise Error("threads is %d but must be 1..256" % threads)
        _pools[threads] = lib.attn_pool_exec(ctypes.c_void_p(pool))
    return _pools[threads]


def _must(status, what):
    if status != 0:
        raise Error("%s: %s" % (what, library().attn_status_str(status).decode()), status)


# ---- arrays ------------------------------------------------------------------------------------------------------------
def _numpy(x):
    """The array behind x: a torch tensor on the CPU shares its memory."""
    return x.detach().numpy() if hasattr(x, "detach") else np.asarray(x)


def _floats(x, name, dims):
    if isinstance(x, (list, tuple)):
        raise Error("%s is a %s but must be an array: np.array(%s, np.float32)" % (name, type(x).__name__, name))
    x = _numpy(x)
    if x.dtype != np.float32:
        raise Error("%s is %s but must be float32: %s.astype(np.float32)" % (name, x.dtype, name))
    if x.ndim not in dims:
        raise Error("%s has %d axes %s but must have %s" % (name, x.ndim, x.shape, " or ".join(map(str, dims))))
    return x


def _ints(x, name, shape):
    x = _numpy(x)
    if x.size and x.dtype.kind not in "iu":
        raise Error("%s is %s but must be integers" % (name, x.dtype))
    if shape is not None and x.shape != shape:
        raise Error("%s has the shape %s but must have %s" % (name, x.shape, shape))
    if x.size and (x.min() < -2**31 or x.max() >= 2**31):
        raise Error("%s has a number that is no int" % name)
    return np.ascontiguousarray(x, dtype=np.intc)


def _rows(x):
    """x and its strides {batch, row, head} in numbers; a copy where attn.h cannot say them."""
    inner = x.shape[-1] <= 1 or x.strides[-1] == x.itemsize
    steps = [s for s, n in zip(x.strides[:3], x.shape) if n > 1]
    if not inner or any(s <= 0 or s % x.itemsize for s in steps):
        x = np.ascontiguousarray(x)
    return x, [s // x.itemsize if n > 1 else 0 for s, n in zip(x.strides[:3], x.shape)]


def _cells(x, name, shape, full):
    """A mask or bias: right-aligned to [batch][heads][n_q][n_k], where all but the last may be 1."""
    if x.ndim > 4 or x.ndim < 1:
        raise Error("%s has %d axes but must have 1 to 4" % (name, x.ndim))
    given = x.shape
    x = x[(None,) * (4 - x.ndim)]
    for axis in range(3):
        if x.shape[axis] not in (1, full[axis]):
            raise Error("%s has the shape %s, which does not go with [batch %d][heads %d][n_q %d][n_k %d]"
                        % ((name, given) + full))
        if x.shape[axis] > 1 and x.strides[axis] == 0:                  # broadcast: shared
            x = x[tuple(slice(1) if i == axis else slice(None) for i in range(4))]
    if x.shape[3] != full[3]:
        raise Error("%s has %d columns but there are %d keys" % (name, x.shape[3], full[3]))
    x, stride = _rows(x)
    # attn.h marks a shared dimension by size 1; if the full size is 1, both are the same
    return x, (ctypes.c_int * 3)(*x.shape[:3]), (ctypes.c_ssize_t * 3)(*stride)


# ---- attention ---------------------------------------------------------------------------------------------------------
def sdpa(q, k=None, v=None, mask=None, *, causal=False, lengths=None, q_lengths=None, k_starts=None, window=None, kv=None,
         k_map=None, q_pos=0, bias=None, alibi=None, rel_bias=None, sinks=None, scale=None, softcap=None, layout="bshd",
         weights=False, lse=False, threads=1, backend="auto"):
    """softmax(scale q k' + bias + mask) v, for keys that all of mask, causal, window and lengths let be seen.

    q, k, v   [batch][row][head][x], or with layout="bhsd" [batch][head][row][x], or [row][x] of one head. k and v may have
              fewer heads (grouped-query attention) and rows of their own
    mask      [n_q][n_k], or with heads and batch in front, each of these axes full or 1. bool: True = attend; float32: added,
              and -inf hides
    causal    True, "top_left" (a whole sequence) or "bottom_right" (the newest rows of one). True is refused where the two
              are not the same; with kv it is bottom-right
    lengths   [batch] keys of each entry that exist; q_lengths: rows, the others are zeros; k_starts: keys padded on the left
    window    keys that a row sees backwards, the own one counted (Mistral's window), or (backwards, forwards); 0: all
    kv        a Cache in place of k and v. k_map [batch]: which K/V entry each entry of q reads
    bias, alibi [heads], rel_bias [heads][2*extent+1], sinks [heads], scale, softcap, q_pos: as in attn_args of attn.h
    weights, lse: True: returns (out, weights [batch][heads][n_q][n_k], lse [batch][heads][n_q]), those asked for. weights may be
              a rising list of heads: only theirs are made (Whisper's alignment_heads)
    """
    lib, a = library(), _Args()
    tensor = hasattr(q, "detach")
    q = _floats(q, "q", (4, 2))
    flat = q.ndim == 2
    if layout not in ("bshd", "bhsd"):
        raise Error('layout is %r but must be "bshd" or "bhsd"' % (layout,))

    def shaped(x, name):                                                # to [batch][row][head][x]
        x = _floats(x, name, (2,) if flat else (4,))
        if flat:
            return x[None, :, None, :]
        return x.transpose(0, 2, 1, 3) if layout == "bhsd" else x

    q = shaped(q, "q")
    batch, n_q, heads, head_dim = q.shape
    if (kv is None) == (k is None or v is None):
        raise Error("sdpa wants k and v, or kv" if kv is None else "sdpa wants k and v, or kv, not both")
    keep = [q]                                                          # must live until the call has ended
    if kv is not None:
        if not isinstance(kv, Cache):
            raise Error("kv is no attn.Cache")
        a.kv, v_dim, n_k, kv_heads = ctypes.addressof(kv._kv), kv.v_head_dim, int(max(kv.lengths, default=0)), kv.kv_heads
        if head_dim != kv.head_dim or heads % kv_heads:
            raise Error("q has %d heads of %d but the cache %d of %d" % (heads, head_dim, kv_heads, kv.head_dim))
        if mask is not None:
            n_k = max(n_k, _numpy(mask).shape[-1])
        if k_map is None and batch != kv.batch:
            raise Error("q has %d entries but the cache %d: say k_map" % (batch, kv.batch))
    else:
        k, v = shaped(k, "k"), shaped(v, "v")
        n_k, kv_heads, v_dim = k.shape[1], k.shape[2], v.shape[3]
        if k.shape[3] != head_dim:
            raise Error("q has heads of %d but k of %d" % (head_dim, k.shape[3]))
        if k.shape[:3] != v.shape[:3]:
            raise Error("k and v do not have the same batch, rows and heads: %s and %s" % (k.shape, v.shape))
        if k_map is None and k.shape[0] != batch:
            raise Error("q has %d entries but k %d: say k_map" % (batch, k.shape[0]))
        if kv_heads == 0 or heads % kv_heads:
            raise Error("%d heads of k do not divide %d heads of q" % (kv_heads, heads))
        a.k_batch = k.shape[0]
        for name, x in (("k", k), ("v", v)):
            x, stride = _rows(x)
            keep.append(x)
            setattr(a, name, x.ctypes.data)
            setattr(a, name + "_stride", (ctypes.c_ssize_t * 3)(*stride))
    q, stride = _rows(q)
    keep.append(q)
    a.q, a.q_stride = q.ctypes.data, (ctypes.c_ssize_t * 3)(*stride)
    a.batch, a.n_q, a.n_k, a.heads, a.kv_heads, a.head_dim, a.v_head_dim = batch, n_q, n_k, heads, kv_heads, head_dim, v_dim

    if causal is True and kv is None and n_q != n_k:
        raise Error('causal=True with %d rows and %d keys can mean two masks: say "top_left" (row 0 sees key 0) or '
                    '"bottom_right" (the last row sees all)' % (n_q, n_k))
    if causal not in (False, None, True, "top_left", "bottom_right"):
        raise Error('causal is %r but must be True, False, "top_left" or "bottom_right"' % (causal,))
    a.causal = {False: 0, None: 0, True: 1 if kv is not None else 2, "bottom_right": 1, "top_left": 2}[causal]
    a.q_pos, a.scale, a.softcap = q_pos, scale or 0, softcap or 0
    if scale is not None and scale == 0:
        raise Error("scale is 0: every key would weigh the same (None is the default, 1/sqrt(head_dim))")
    if window is not None:
        a.window_left, a.window_right = window if isinstance(window, tuple) else (window, 0)
    for name, field, x in (("lengths", "k_lengths", lengths), ("q_lengths", "q_lengths", q_lengths),
                           ("k_starts", "k_starts", k_starts), ("k_map", "k_map", k_map)):
        if x is not None:
            keep.append(_ints(x, name, (batch,)))
            setattr(a, field, keep[-1].ctypes.data)
    for name, field, x in (("alibi", "alibi_slopes", alibi), ("sinks", "sinks", sinks)):
        if x is not None:
            keep.append(np.ascontiguousarray(_floats(x, name, (1,))))
            if keep[-1].shape != (heads,):
                raise Error("%s has %d numbers but there are %d heads" % (name, keep[-1].size, heads))
            setattr(a, field, keep[-1].ctypes.data)
    if rel_bias is not None:
        keep.append(np.ascontiguousarray(_floats(rel_bias, "rel_bias", (2,))))
        rows, width = keep[-1].shape
        if rows != heads or width % 2 == 0:
            raise Error("rel_bias is [%d][%d] but must be [heads %d][2*extent + 1]" % (rows, width, heads))
        a.rel_bias, a.rel_extent = keep[-1].ctypes.data, width // 2
    for name, x in (("mask", mask), ("bias", bias)):
        if x is not None:
            x = _numpy(x)
            field = name
            if x.dtype == np.bool_ and name == "mask":
                field = "keep"
            elif x.dtype != np.float32:
                raise Error("%s is %s but must be float32%s" % (name, x.dtype, ", or bool" if name == "mask" else ""))
            x, shape, stride = _cells(x, name, None, (batch, heads, n_q, n_k))
            keep.append(x)
            setattr(a, field, x.ctypes.data)
            setattr(a, field + "_shape", shape)
            setattr(a, field + "_stride", stride)
    names = _backend_names()
    if backend in names:
        a.backend = names.index(backend)
    else:
        raise Error("backend is %r but must be auto or one of %s" % (backend, ", ".join(backends())))
    if threads != 1:
        a.exec = ctypes.addressof(_pool(threads))

    out = np.empty((batch, n_q, heads, v_dim), np.float32)
    if layout == "bhsd" and not flat:
        out = np.empty((batch, heads, n_q, v_dim), np.float32).transpose(0, 2, 1, 3)
    a.out, a.out_stride = out.ctypes.data, (ctypes.c_ssize_t * 3)(*_rows(out)[1])
    planes = heads
    if not isinstance(weights, bool):
        keep.append(_ints(weights, "weights", (len(weights),)))
        a.weights_heads, a.n_weights_heads, planes, weights = keep[-1].ctypes.data, len(weights), len(weights), True
    w = np.empty((batch, planes, n_q, n_k), np.float32) if weights else None
    s = np.empty((batch, heads, n_q), np.float32) if lse else None
    a.weights, a.lse = w.ctypes.data if weights else None, s.ctypes.data if lse else None
    status = lib.attn_sdpa(ctypes.byref(a))
    if status != 0:
        why = ctypes.create_string_buffer(400)
        lib.attn_check(ctypes.byref(a), why, len(why))
        raise Error(why.value.decode(), status)
    if flat:
        out, w, s = out[0, :, 0], w[0, 0] if weights else None, s[0, 0] if lse else None
    elif layout == "bhsd":
        out = out.transpose(0, 2, 1, 3)
    answer = [x for x in (out, w, s) if x is not None]
    if tensor:
        answer = [sys.modules["torch"].from_numpy(x) for x in answer]
    return answer[0] if len(answer) == 1 else tuple(answer)


class Cache:
    """Keys and values that stay: a decoder's past, or an encoder's output. sdpa(q, kv=cache) reads it, with the bits of plain
    rows. storage "f16" or "bf16" keeps them in half the bytes; pages as in attn_kv_args of attn.h."""

    def __init__(self, batch, kv_heads, head_dim, capacity, v_head_dim=0, storage="f32", pages=0):
        self._made = False
        if storage not in _STORAGE:
            raise Error("storage is %r but must be one of %s" % (storage, ", ".join(_STORAGE)))
        self._kv = _Kv()
        args = _KvArgs(batch, kv_heads, head_dim, v_head_dim, capacity, pages, _STORAGE[storage], _STORAGE[storage])
        _must(library().attn_kv_init(ctypes.byref(self._kv), ctypes.byref(args)),
              "Cache(batch=%d, kv_heads=%d, head_dim=%d, capacity=%d)" % (batch, kv_heads, head_dim, capacity))
        self._made = True
        self.batch, self.kv_heads, self.head_dim, self.v_head_dim = batch, kv_heads, head_dim, v_head_dim or head_dim
        self.capacity = capacity

    def __del__(self):
        if getattr(self, "_made", False) and _lib is not None:
            _lib.attn_kv_free(ctypes.byref(self._kv))

    @property
    def lengths(self):
        """[batch]: keys that each entry has had."""
        return np.ctypeslib.as_array(ctypes.cast(self._kv.lengths, ctypes.POINTER(ctypes.c_int)), (self.batch,)).copy()

    @property
    def free_pages(self):
        return self._kv.free_pages

    def _call(self, name, *arguments):
        lib = library()
        _must(getattr(lib, "attn_kv_" + name)(ctypes.byref(self._kv), *arguments), "Cache.%s" % name)

    def append(self, k, v, entry=-1):
        """Appends k [batch][n][kv_heads][head_dim] and v [..][v_head_dim], n rows to each entry; or k [n][kv_heads][head_dim]
        and v to one entry."""
        entries = (self.batch,) if entry == -1 else ()
        k, v = _floats(k, "k", (len(entries) + 3,)), _floats(v, "v", (len(entries) + 3,))
        n, widest = k.shape[-3], max(self.head_dim, self.v_head_dim)
        for x, name, dim in ((k, "k", self.head_dim), (v, "v", self.v_head_dim)):
            if x.shape != entries + (n, self.kv_heads, dim):
                raise Error("%s has the shape %s but the cache wants %s" % (name, x.shape, entries + (n, self.kv_heads, dim)))
        rows = [np.zeros(entries + (n, self.kv_heads * widest), np.float32) for _ in range(2)]     # of one width for both
        for row, x in zip(rows, (k, v)):
            row[..., :self.kv_heads * x.shape[-1]] = x.reshape(entries + (n, -1))
        try:
            self._call("append", entry, rows[0].ctypes.data, rows[1].ctypes.data, n, self.kv_heads * widest)
        except Error as e:
            if e.status != _FULL:
                raise
            raise Error("Cache.append: no room for %d more keys: the entries have had %s, the capacity is %d, free pages: %d"
                        % (n, self.lengths.tolist(), self.capacity, self.free_pages), e.status) from None

    def reorder(self, map):
        """Beam search: entry b becomes what entry map[b] was. No keys are moved."""
        self._call("reorder", _ints(map, "map", (self.batch,)).ctypes.data)

    def copy(self, to, source, length):
        """Entry `to` becomes the first `length` keys of entry `source`, and shares them."""
        self._call("copy", to, source, length)

    def truncate(self, entry, length):
        """Takes back all but the first keys of an entry (-1: of all)."""
        self._call("truncate", entry, length)

    def forget(self, entry, pinned, before):
        """Gives back pages of old keys, but the first `pinned`; positions stay."""
        self._call("forget", entry, pinned, before)

    def read(self, entry, first, n):
        """k [n][kv_heads][head_dim] and v [n][kv_heads][v_head_dim] of keys first .. first + n - 1."""
        k, v = (np.empty((max(n, 0), self.kv_heads, dim), np.float32) for dim in (self.head_dim, self.v_head_dim))
        self._call("read", entry, first, n, k.ctypes.data, v.ctypes.data)
        return k, v

    def save(self, entry):
        """The entry as bytes, the same on every machine."""
        size = library().attn_kv_saved(ctypes.byref(self._kv), entry)
        if size == ctypes.c_size_t(-1).value:
            raise Error("Cache.save: there is no entry %d" % entry)
        data = ctypes.create_string_buffer(size)
        self._call("save", entry, data, size)
        return data.raw

    def load(self, entry, data):
        """Makes the entry what was saved. Damaged bytes are refused and change nothing."""
        self._call("load", entry, bytes(data), len(data))


# ---- masks as matrices: 0 visible, -inf hidden -------------------------------------------------------------------------
def _mask(shape, function, *arguments):
    if min(shape) < 0:
        raise Error("%s: a size is negative: %s" % (function, shape))
    m = np.empty(shape, np.float32)
    _must(getattr(library(), "attn_" + function)(m.ctypes.data, *arguments), function)
    return m


def causal(n_q, n_k=None, pos=0):
    """[n_q][n_k]: row i sees keys 0 .. i + pos."""
    n_k = n_q if n_k is None else n_k
    return _mask((n_q, n_k), "mask_causal", n_q, n_k, pos)


def window(n_q, n_k=None, left=0, right=0, pos=0):
    """[n_q][n_k]: row i sees `left` keys backwards and `right` forwards, its own counted in both; 0: all."""
    n_k = n_q if n_k is None else n_k
    return _mask((n_q, n_k), "mask_window", n_q, n_k, left, right, pos)


def padding(ids, pad):
    """[batch][n][n] from token ids [batch][n]: hides the columns whose token is pad. For self-attention."""
    ids = _ints(ids, "ids", None)
    if ids.ndim != 2:
        raise Error("ids must be [batch][n] but has the shape %s" % (ids.shape,))
    return _mask((ids.shape[0], ids.shape[1], ids.shape[1]), "mask_padding", ids.ctypes.data, pad, *ids.shape)


def cross(source_ids, pad, n_q):
    """[batch][n_q][n_k] from the token ids [batch][n_k] of the source."""
    ids = _ints(source_ids, "source_ids", None)
    if ids.ndim != 2:
        raise Error("source_ids must be [batch][n_k] but has the shape %s" % (ids.shape,))
    return _mask((ids.shape[0], n_q, ids.shape[1]), "mask_cross", ids.ctypes.data, pad, ids.shape[0], n_q, ids.shape[1])


def lengths(k_lengths, n_q, n_k):
    """[batch][n_q][n_k]: entry b has k_lengths[b] keys."""
    x = _ints(k_lengths, "k_lengths", None).ravel()
    return _mask((x.size, n_q, n_k), "mask_lengths", x.ctypes.data, x.size, n_q, n_k)


def merge(a, b):
    """Hidden where either is, elsewhere the sum. Either may have a batch [batch][n_q][n_k]."""
    a, b = _floats(a, "a", (2, 3)), _floats(b, "b", (2, 3))
    if a.ndim < b.ndim or (a.ndim == b.ndim == 3 and a.shape[0] < b.shape[0]):
        a, b = b, a
    m, by = a.reshape((-1,) + a.shape[-2:]).copy(), np.ascontiguousarray(b.reshape((-1,) + b.shape[-2:]))
    if m.shape[1:] != by.shape[1:] or by.shape[0] not in (1, m.shape[0]):
        raise Error("masks of %s and %s do not go together" % (a.shape, b.shape))
    _must(library().attn_mask_merge(m.ctypes.data, m.shape[0], by.ctypes.data, by.shape[0], m.shape[1], m.shape[2]), "merge")
    return m.reshape(a.shape)


def text(m, rows=None, columns=None):
    """A mask, bias or weights [n_q][n_k] as text, with names for rows and columns."""
    m = np.ascontiguousarray(_floats(m, "m", (2,)))
    names = []
    for given, n, what in ((rows, m.shape[0], "rows"), (columns, m.shape[1], "columns")):
        if given is not None and len(given) != n:
            raise Error("there are %d %s but %d names" % (n, what, len(given)))
        names.append(None if given is None else (ctypes.c_char_p * n)(*(str(x).encode() for x in given)))
    size = library().attn_mask_format(None, 0, m.ctypes.data, m.shape[0], m.shape[1], *names)
    room = ctypes.create_string_buffer(size + 1)
    library().attn_mask_format(room, size + 1, m.ctypes.data, m.shape[0], m.shape[1], *names)
    return room.value.decode()


def show(m, rows=None, columns=None):
    """Prints it."""
    print(text(m, rows, columns), end="")


def _backend_names():
    """The names of attn_backend, in order: "auto", "scalar", ..."""
    names = []
    while True:
        name = library().attn_backend_name(len(names)).decode()
        if name == "unknown":
            return names
        names.append(name)


def backends():
    """Instruction sets that run here, the best first."""
    found = (ctypes.c_int * 16)()
    n = library().attn_backends(found, 16)
    return [library().attn_backend_name(found[i]).decode() for i in range(n)]
