/* attn.h - v1.0.0 - attention for inference in plain C. Public domain or MIT-0: see section 13.

   Attention for programs that run models on the CPU. Masked keys cannot leak, and all processors
   with fused multiply-add give the same bits. One file, float32, no dependencies. In ONE .c file of
   your program, preferably a separate one, because it takes 9 to 25 seconds to compile:

       #define ATTN_IMPLEMENTATION
       #include "attn.h"

   In all other files, only the #include. Short calls are for the common cases:

       float q[4*8], k[6*8], v[6*8], out[4*8];    // 4 queries, 6 keys, 2 heads of 4: [row][head][x]
       int source_lengths[1] = { 5 };             // the last key is padding
       attn_cross(out, q, k, v, 1, 4, 6, 2, 4, source_lengths, NULL);

   The full call has every option:

       attn_args a = attn_args_for(1, 4, 6, 2, 4); // batch, n_q, n_k, heads, head_dim
       a.out = out;  a.q = q;  a.k = k;  a.v = v;  // unset members are 0, the default
       a.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
       if (attn_sdpa(&a) != ATTN_OK) ...           // the reason: ATTN_DEBUG, or attn_check

   cc -O2 main.c is the fast build: no -march, no -lm, no -pthread. The best instruction set of the
   machine is chosen at run time. README.md has complete programs and flags for other machines.
   examples/RECIPES.md has lines for CMake, Meson and Python, and examples/PORTING.md tables for
   users of PyTorch, ONNX, flash-attention, ggml and MLX.

   CONTENTS
        0  this manual                                       7  K/V cache
        1  the API: MASKS, SHORT CALLS, FULL CALL, STATES,   8  the driver: blocks, chunks, the fold
           STORAGE, CACHE, LAYERS, LINEAR ATTENTION,         9  projections and layers
           THREADS; then NOTES                              10  the thread pool
        2  configuration (the implementation begins)        11  vector vocabulary
        3  the specification: scalar attention              12  kernels, written once
        4  cpu detection, dispatch, rounding and flushing   13  revision history, licence
        5  checking, shapes, strides, workspace
        6  masks and biases

   OPTIONS. Define them before the implementation is included.
       ATTN_DEBUG             for learning: prints the reason of each rejected call to stderr
                              (unless ATTN_REFUSED receives it), and warns of valid calls that are
                              often mistakes: without rows, with a window over forgotten keys, with
                              top-left rows over a cache. No effect with ATTN_NO_STDIO
       ATTN_REFUSED(user, status, sentence)
                              a macro, called when a function rejects its arguments. The sentence
                              names the function, the argument and the values; copy it to keep it.
                              user: that of the call, or NULL. Declare what the macro calls before
                              the #include.                                       Default: nothing
       ATTN_MALLOC(user, n), ATTN_FREE(user, p)
                              allocate and free; not called if the caller supplies memory (work,
                              mem). user: that of the call.             Default: malloc and free
       ATTN_STATIC            everything static, for one translation unit; functions that a program
                              does not call are left out.                         Default: extern
       ATTNDEF                linkage of public functions.                        Default: extern
       ATTN_THREADS           the thread pool of section 10 (pthreads or Win32) and its functions:
                              define it before EVERY #include that uses them (otherwise: unknown
                              type name attn_pool)
       ATTN_NO_THREAD_LOCAL   the pool without thread-local variables, for compilers without them:
                              a call that finds the pool busy runs on the caller's thread
       ATTN_NO_STDIO          no <stdio.h>, no attn_mask_print
       ATTN_ASSERT(x)         checks internal invariants, never arguments.        Default: assert
       ATTN_STACK             bytes of stack that attn_self and attn_cross may use instead of
                              allocating (STACK in NOTES).                        Default: 24576
       ATTN_SERIAL_FLOPS      attn_sdpa calls with less work than this (about 10 us) run on the
                              caller's thread.                                    Default: 400000
       ATTN_POOL_SPIN         microseconds that an idle worker of the pool spins before it sleeps
                              (THREADS); 0: sleeps at once.                       Default: 2000
       ATTN_NO_AFFINITY       the pool never changes the CPU masks of its workers (Linux)
       ATTN_SELF              the name by which this file includes itself: define it if you rename
                              the file (otherwise: attn.h: No such file).         Default: "attn.h"
       ATTN_CPU_MASK          for tests: a backend whose bit (1 << ATTN_AVX512, ...) is 0 is not
                              used. Evaluated by the first call only.             Default: all bits
       ATTN_IDE               for editors, never for a program: the kernels of AVX2 are parsed once
                              more, so that the editor shows their code
   The following leave parts out, declarations included: set the same options before every
   #include. KB of code and constants (gcc 12 -O2, x86-64; `make size`, also for compile times):
       everything                                                                          444
       ATTN_NO_SSE2           processors without AVX2 run the scalar backend,              381
                              so all x86 processors give the same bits
       ATTN_NO_AVX512         processors with AVX-512 run AVX2                             325
       ATTN_NO_DELTA          no attn_delta and attn_conv                                  424
       ATTN_NO_LAYERS         no attn_linear, attn_norm, attn_activate, attn_rope,         333
                              attn_mha, attn_delta, attn_conv
       ATTN_NO_CACHE          no attn_kv, no attn_self_step, no layers                     306
       these five together                                                                 152
       ATTN_NO_SIMD           only the scalar backend: the same bits in                    159
                              40 to 200 times the time of AVX2
       ATTN_NO_SIMD with ATTN_NO_CACHE                                                      61
       ATTN_NO_WASM           with -mrelaxed-simd: engines whose multiply-add rounds               -
                              twice run the scalar backend
   On a Cortex-M7 with -Os, ATTN_STATIC, ATTN_NO_STDIO and ATTN_NO_LAYERS, attn_sdpa, attn_self and
   attn_cross take 22 KB; with attn_mask_format and newlib 32 KB (`make small` runs this in qemu).

   -ffast-math, the flags that it implies, and -mfpmath=387 on x86-64 stop the compilation with an
   error, because they delete infinities or change bits. If your program needs them, compile the
   file with ATTN_IMPLEMENTATION without them. Flags that cannot be detected are switched off for
   the implementation, with one exception: clang's -fno-honor-nans is an error with clang 19, but
   silently changes bits with clang 14 and 16.

   TERMS
       entry    one sequence of a batch
       row      one query; rows after q_lengths are padding
       key      a key together with its value
       empty    a row without a visible key
       keep     bytes of a mask: nonzero = visible
       sink     a score per head without a value: it only enlarges the denominator
       step     new rows appended to a cache, which then attend to all its keys
       page     128 keys of one entry of a cache
       chunk    128 keys of an entry, counted from its first key; sums run in chunks
       state    a row after some of its keys, as floats: attention in parts (STATES)
       piece    a range of an entry's keys, given to one of several calls (STATES)
       part     the states of one chunk, in carry_out if `parts` is set
       stage    the point of the formula at which `weights` are taken: scores or probabilities
       lse      logarithm of the denominator of a row's softmax
       linear   y = x W^T + b, with packed weights (attn_linear)
       layer    attention with its projections (attn_mha)
       backend  the kernels of one instruction set, or plain C (ATTN_SCALAR)
       fma      fused multiply-add: one rounding

   FUNCTIONS
     any time
       attn_status_str        describes a status
       attn_version           version of the compiled implementation
       attn_struct_size       size of a public struct there, for bindings
     MASKS
       attn_mask_causal       hides keys after the row
       attn_mask_window       hides keys far from the row
       attn_mask_padding      hides padding of the row's own sequence, from token ids
       attn_mask_cross        hides padding of the other sequence, from token ids
       attn_mask_lengths      hides keys from a length on
       attn_mask_keep         converts bytes
       attn_mask_merge        hides what either of two masks hides
       attn_lengths           counts tokens before the padding
       attn_bias_t5           T5's bias by distance
       attn_bias_shift        scores by distance (Transformer-XL, Conformer) as a bias
       attn_mask_format       a mask, bias or weights as text
       attn_mask_print        prints this text
     SHORT CALLS
       attn_self              a sequence attends to itself
       attn_cross             a sequence attends to another one
     FULL CALL
       attn_args_for          arguments with sizes, everything else 0
       attn_sdpa              attention with every option
       attn_sdpa_workspace    bytes of `work` for it
       attn_check             explains an error, or how the call will run
       attn_backends          lists the instruction sets that this machine can use
       attn_backend_name      names one of them
     STATES
       attn_fold              combines the parts of a sequence, in order
       attn_merge             combines two disjoint sets of keys, in any order
     STORAGE
       attn_stored_bytes      bytes of a row in a format
       attn_narrow            floats to a format
       attn_widen             a format to floats
     CACHE
       attn_kv_size           bytes of `mem` for attn_kv_init
       attn_kv_init           makes a cache
       attn_kv_free           frees it
       attn_kv_append         appends keys and values
       attn_self_step         appends and attends in one call
       attn_kv_truncate       removes the newest keys
       attn_kv_reset          removes all keys
       attn_kv_keep           keeps one path of a tree of guesses
       attn_kv_forget         frees pages of old keys
       attn_kv_reorder        beam search: each entry continues the one you name
       attn_kv_copy           copies an entry by sharing its pages
       attn_kv_read           reads stored keys as floats
       attn_kv_saved          bytes that attn_kv_save writes
       attn_kv_save           writes an entry as portable bytes
       attn_kv_load           reads it back
     LAYERS
       attn_linear_size       bytes of `mem` for attn_linear_init
       attn_linear_init       packs the weights of y = x W^T + b
       attn_linear_run        computes y
       attn_linear_read       reads rows of W as floats
       attn_linear_free       frees it
       attn_norm              RMS and layer norms
       attn_activate          GELU, SiLU, with or without a gate
       attn_rope_table        cosines and sines of rotary embedding
       attn_rope_freqs        frequencies of a checkpoint (Llama 3, YaRN, LongRoPE ...)
       attn_rope              rotates rows
       attn_mha_size          bytes of `mem` for attn_mha_init
       attn_mha_init          packs the weights of a layer
       attn_mha_free          frees it
       attn_mha_self          projects, attends to the same rows, projects
       attn_mha_cross         the same with the keys of another sequence
       attn_mha_self_step     the same for new rows of a cache: a decoder's step
       attn_mha_self_look     a step over the cache of another layer, without an append
       attn_mha_cross_fill    projects the other sequence into a cache, once
       attn_mha_cross_step    attends to that cache, for each token
       attn_mha_workspace     bytes of `work` for these calls
     LINEAR ATTENTION
       attn_delta             a recurrence over a state instead of keys
       attn_delta_workspace   bytes of `work` for it
       attn_conv              the short convolution before it
     THREADS, with ATTN_THREADS
       attn_pool_create       starts a thread pool
       attn_pool_exec         the pool as `exec` of a call
       attn_pool_destroy      ends it

   ATTENTION, AS COMPUTED HERE
       s[i][j]  = scale * (q[i] . k[j])            scale: 1/sqrt(head_dim) unless given
       s        = softcap * tanh(s / softcap)      if softcap is given
       s[i][j] += -slope * |pos(i) - j|            if ALiBi slopes are given
       s[i][j] += rel_bias[j - pos(i)]             if given; -inf hides key j from row i
       s[i][j] += bias[i][j] + mask[i][j]          -inf in either: key j is hidden from row i
       p[i][j]  = exp(s[i][j]) / sum of exp(s[i][.])     over visible keys, and the sink, if given
       out[i]   = sum of p[i][j] * v[j]
   Masks combine freely: a key is visible only if every mask allows it. A hidden key is treated as
   if it did not exist: NaN, Inf or uninitialised memory in its K, V, score or bias cannot reach the
   row. Only masks hide keys: a NaN in a visible key or value is never hidden. An empty row is zeros
   (weights 0, lse -inf).

   POSITIONS are indices in the buffer of keys. Row i of entry b is at pos(i) = i + pos. Top-left,
   the default alignment: pos = q_pos + q_pos_each[b]. Bottom-right adds
   k_starts[b] + k_lengths[b] - (rows of entry b), so that the last row is at the last key.
   1 = visible:

       causal top-left   causal bottom-right   the same, more rows   window_left 2,   window_left 2,
       (pos 0)           4 rows, 6 keys        than keys             causal           window_right 2
         1 0 0 0           1 1 1 0 0 0           0 0                   1 0 0 0 0        1 1 0 0 0
         1 1 0 0           1 1 1 1 0 0           0 0   <- empty        1 1 0 0 0        1 1 1 0 0
         1 1 1 0           1 1 1 1 1 0           1 0                   0 1 1 0 0        0 1 1 1 0
         1 1 1 1           1 1 1 1 1 1           1 1                   0 0 1 1 0        0 0 1 1 1

   Top-left is for a whole sequence, bottom-right for its newest rows (decoding).

   REPRODUCIBLE. The same inputs give the same bits
     - with 1 thread or 64, alone or in a batch,
     - for a whole prompt at once or token by token through a cache,
     - with a mask as a flag, a matrix or keep bytes,
     - on every backend with fused multiply-add: scalar, AVX2, AVX-512, NEON, RISC-V V, wasm_fma.
   Exceptions:
     - SSE2 and wasm have no fma. Both give the same bits, which differ from those of the others.
       ATTN_SCALAR gives the common bits there, in 9 to 40 times the time of SSE2, 44 to 115 times
       that of wasm.
     - k_starts and keep bytes that hide the same keys agree only to rounding, because chunks are
       counted from the first key that exists.
     - 32-bit x87 builds in gnu modes have excess precision.
   A computed NaN is stored as 0x7FC00000 and a computed zero as +0; only linears, and therefore
   layers, may store -0. The caller's rounding mode, denormal flushing, traps and exception flags
   are saved and restored (x86 with SSE, ARM, RISC-V, s390x, POWER; elsewhere, and with tcc, call in
   the default mode).

   TRAPS
     - In a mask -1e9, -10000 and -FLT_MAX are ordinary numbers: a row of them is NOT empty. With
       -1e9 or -FLT_MAX it averages all keys, because adding them rounds every score away; with
       -10000 it attends almost as if there were no mask. Use -INFINITY.
     - Causal and padding masks hide COLUMNS (keys). Padded rows need no mask; with q_lengths they
       are written as zeros, but their keys stay visible: set k_lengths also.
     - New rows over a cache need causal (or align) bottom-right: top-left hides all keys but the
       first ones. attn_self_step and attn_mha_self_step are always bottom-right; attn_mha_self is
       causal only if you set attn.causal.
     - A window counts the row's own key: window_left 1 sees only the row itself, 0 is no limit.
     - scale 0 is the default, 1/sqrt(head_dim). T5 needs 1.
     - A cache is not copied by assignment: attn_kv_copy and attn_kv_save copy its keys. */
#ifndef ATTN__ISA
#ifndef ATTN_H
#define ATTN_H
/* Sizes are int, not int32_t: in newlib int32_t is a long, so an int array would not convert. */
#include <stddef.h>
#define ATTN_VERSION 10000                /* 1.0.0: 10000 * major + 100 * minor + patch */
#ifndef ATTNDEF
#if defined(ATTN_STATIC) && (defined(__GNUC__) || defined(__clang__))
#define ATTNDEF static __attribute__((unused))
#elif defined(ATTN_STATIC)
#define ATTNDEF static
#else
#define ATTNDEF extern
#endif
#endif
#ifdef __cplusplus
extern "C" {
#endif
/* A status is a KIND of error; the sentence passed to ATTN_REFUSED names the argument and the
   reason. All arguments are checked, and memory is allocated, before anything is written: after an
   error no byte of an output or a cache has changed. (The inits zero their object.) */
typedef enum attn_status {
    ATTN_OK = 0,
    ATTN_E_NULL = -1,                     /* a required pointer is NULL */
    ATTN_E_SIZE = -2,                     /* a size is negative, or too small for its content */
    ATTN_E_HEADS = -3,                    /* kv_heads does not divide heads, or heads d_model */
    ATTN_E_STRIDE = -4,                   /* a stride is negative, or smaller than its content */
    ATTN_E_LENGTHS = -5,                  /* a length, start or ragged offset is out of range, or
                                             ragged offsets decrease */
    ATTN_E_MAP = -6,                      /* an entry, or a number in a map, is out of range */
    ATTN_E_SHAPE = -7,                    /* a mask, keep or bias shape is not 1 or full size */
    ATTN_E_OPTION = -8,                   /* an option has a value that does not exist */
    ATTN_E_CONFLICT = -9,                 /* two settings are mutually exclusive */
    ATTN_E_OVERLAP = -10,                 /* an output overlaps an input or another output */
    ATTN_E_OVERFLOW = -11,                /* a size does not fit the address space */
    ATTN_E_WORK = -12,                    /* the memory supplied is too small */
    ATTN_E_MEMORY = -13,                  /* an allocation failed */
    ATTN_E_BACKEND = -14,                 /* the backend does not run on this machine */
    ATTN_E_FULL = -15,                    /* the cache has no room for the keys */
    ATTN_E_ALIGN = -16,                   /* a float, int or size_t pointer is not aligned */
    ATTN_E_BYTES = -17                    /* attn_kv_load: not bytes of attn_kv_save; packed: not
                                             packed weights, or another layout */
} attn_status;

/* Describes a status, any number, in words: a literal, never NULL. */
ATTNDEF const char *attn_status_str(attn_status s);
ATTNDEF int         attn_version(void);   /* ATTN_VERSION of the compiled implementation */

/* Returns the size of a public struct, by its name ("attn_args"), in the compiled implementation; 0
   if name is NULL or unknown, or the struct is left out (with ATTN_NO_CACHE, "attn_kv"; with
   ATTN_NO_LAYERS, "attn_mha"). For bindings: VERSIONS in NOTES. */
ATTNDEF size_t      attn_struct_size(const char *name);
#if defined(ATTN_NO_CACHE) && !defined(ATTN_NO_LAYERS)
#define ATTN_NO_LAYERS                    /* layers need caches */
#endif
#if defined(ATTN_NO_LAYERS) && !defined(ATTN_NO_DELTA)
#define ATTN_NO_DELTA                     /* linear attention shares functions with layers */
#endif

/* ---- MASKS --------------------------------------------------------------------------------------
   Masks as printable matrices. A mask is additive, row by row: 0 = visible, -INFINITY = hidden.
   Every builder writes EVERY element of m, which belongs to the caller. Pass m as `mask`: attn_self
   and attn_cross read one matrix per entry [batch][n_q][n_k]; attn_sdpa reads one matrix for all,
   or one per entry with mask_shape[0] = batch. The options causal, window_left, k_lengths, keep ...
   express the same masks without a matrix: faster, with the same bits.

   All are thread safe: they write only m and allocate nothing. ATTN_E_SIZE: a negative size.
   ATTN_E_NULL: NULL for memory that would be read or written. ATTN_E_ALIGN: misaligned floats or
   ints. ATTN_E_OVERFLOW: a matrix too large for memory. ATTN_E_OVERLAP: the output overlaps an
   input. A size of 0 is legal and writes nothing. */

/* m [n_q][n_k]. Row i is at position i + pos and sees the keys up to it: j <= i + pos. pos is 0 for
   a whole sequence, n_k - n_q if the rows are the newest ones; if pos is negative, the first rows
   see nothing.
       3 x 3, pos 0      2 x 5, pos 3          1 = visible
         1 0 0             1 1 1 1 0
         1 1 0             1 1 1 1 1
         1 1 1                                                                                    */
ATTNDEF attn_status attn_mask_causal(float *m, int n_q, int n_k, int pos);

/* m [n_q][n_k]. Row i, at p = i + pos, sees `left` keys backwards and `right` keys forwards, both
   including its own: p - left < j < p + right. 0: unlimited on that side. Negative:
   ATTN_E_OPTION.
       4 x 4, pos 0:     left 2, right 1      left 2, right 2      left 1, right 0
                           1 0 0 0              1 1 0 0              1 1 1 1
                           1 1 0 0              1 1 1 0              0 1 1 1
                           0 1 1 0              0 1 1 1              0 0 1 1
                           0 0 1 1              0 0 1 1              0 0 0 1                      */
ATTNDEF attn_status attn_mask_window(float *m, int n_q, int n_k, int left, int right, int pos);

/* m [batch][n][n] from token ids [batch][n]: hides the COLUMNS whose token is pad_id, wherever
   it occurs. Rows are never hidden: a padded row still sees the real tokens, which is harmless. For
   self-attention; in a decoder, merge with attn_mask_causal.
       ids 7 8 9 pad       1 1 1 0
                           1 1 1 0
                           1 1 1 0
                           1 1 1 0   <- the padded row                                            */
ATTNDEF attn_status attn_mask_padding(float *m, const int *ids, int pad_id, int batch, int n);

/* m [batch][n_q][n_k] from the token ids [batch][n_k] of the OTHER sequence, which the rows attend
   to: hides the columns whose token is pad_id. For cross-attention; the ids of the rows are not
   needed.
       source_ids 7 8 pad, n_q 2       1 1 0
                                       1 1 0                                                      */
ATTNDEF attn_status attn_mask_cross(float *m, const int *source_ids, int pad_id, int batch, int n_q,
                                    int n_k);

/* m [batch][n_q][n_k] from the number of real keys [batch]: key j of entry b is visible iff
   j < k_lengths[b]. A length not in 0..n_k: ATTN_E_LENGTHS. */
ATTNDEF attn_status attn_mask_lengths(float *m, const int *k_lengths, int batch, int n_q, int n_k);

/* m [cells] from bytes [cells]: 0 = hidden, anything else = attend. The boolean mask of PyTorch's
   scaled_dot_product_attention has this polarity; key_padding_mask and attn_mask of
   nn.MultiheadAttention have the opposite one. */
ATTNDEF attn_status attn_mask_keep(float *m, const unsigned char *keep, size_t cells);

/* Merges `by` into m [batch][n_q][n_k]: hidden if hidden in m or in `by`, otherwise the sum. Never
   a NaN from -inf + inf; a visible NaN stays. (Two -FLT_MAX add up to -inf, which hides: use
   -INFINITY.) by is [by_batch][n_q][n_k], by_batch 1 (one matrix for all entries) or batch,
   otherwise ATTN_E_SHAPE.
         1 1 0        1 0 0        1 0 0
         1 1 0   and  1 1 0   =    1 1 0
         1 1 0        1 1 1        1 1 0                                                          */
ATTNDEF attn_status attn_mask_merge(float *m, int batch, const float *by, int by_batch, int n_q,
                                    int n_k);

/* lengths [batch] from token ids [batch][n]: the number of tokens before the first pad_id. If a
   token follows a pad (left padding, or a hole), a length cannot express it: ATTN_E_LENGTHS, and
   no length is written. Use attn_mask_padding. */
ATTNDEF attn_status attn_lengths(int *lengths, const int *ids, int pad_id, int batch, int n);

/* Fills rel_bias [heads][2*extent+1] with T5's relative position bias, for attn_args.rel_bias with
   rel_extent = extent, from table [buckets][heads], the relative_attention_bias.weight of the
   checkpoint. Set scale to 1 (T5 does not scale). The same rel_bias serves calls of any length.
   buckets       32 in T5; 4 to 513, half for each direction (odd: the last one is not used);
                 one-way 2 to 256
   max_distance  128 in T5; more than buckets/4 (one-way: more than buckets/2)
   one_way       0: encoder, one half of the buckets for keys ahead; 1: decoder, keys ahead share
                 bucket 0
   extent        max_distance, beyond which all keys share one bucket; a smaller extent is enough if
                 no key is farther away than that
   Bucket boundaries are exact: no logarithm is rounded. Invalid sizes of the table, or heads < 1:
   ATTN_E_SIZE; one_way neither 0 nor 1: ATTN_E_OPTION.
       buckets of 8 with max_distance 16,     distance -7 -6 -5 -4 -3 -2 -1  0  1  2  3  4  5  6
       both ways:                             bucket    3  3  2  2  2  2  1  0  5  6  6  6  6  7  */
ATTNDEF attn_status attn_bias_t5(float *rel_bias, const float *table, int buckets,
                                 int max_distance, int one_way, int heads, int extent);

/* Converts scores by distance to a bias: bias [matrices][n_q][n_k] from scores
   [matrices][n_q][columns], for the relative positions of Transformer-XL and Conformer (their
   rel_shift), whose scores (q + v) . r depend on row and distance. Column `zero` is distance 0;
   columns before it are keys before the row (farther left: farther away), columns after it keys
   ahead:
       bias[m][i][j] = scores[m][i][zero + j - (i + pos)]
   A key without a column is hidden (-INFINITY). Conformer: columns 2n - 1, zero n - 1.
   Transformer-XL, keys ahead masked: columns n_k, zero n_k - 1, pos n_k - n_q. attn_args.scale is
   not applied to a bias: multiply the scores by it first.
   matrices is batch * heads, with bias_shape {batch, heads, n_q}.
   Errors: SIZE (columns < 1, zero not in 0 .. columns - 1), NULL, OVERFLOW, OVERLAP, ALIGN.
       scores of a row, j - pos(i) -2 -1 0 1 2, zero 2    row 0 of 3    row 1         row 2
       a b c d e                                           c d e         b c d         a b c      */
ATTNDEF attn_status attn_bias_shift(float *bias, const float *scores, int columns, int zero,
                                    int matrices, int n_q, int n_k, int pos);

/* Formats a mask, bias or weight matrix [n_q][n_k] into text, with names (UTF-8) for rows [n_q] and
   columns [n_k]; NULL: none. Zeros are printed as 0, hidden elements as -inf, other numbers with
   two decimals. Columns are aligned by code points (double-width scripts such as CJK are
   misaligned). As with snprintf, at most size bytes are written, terminated unless size is 0, and
   the full length without the terminator is returned. Without rows, columns or m the text is empty.
                The  cat  sat <pad>
       The        0 -inf -inf  -inf
       cat        0    0 -inf  -inf
       sat        0    0    0  -inf
       <pad>      0    0    0  -inf                                                               */
ATTNDEF size_t attn_mask_format(char *text, size_t size, const float *m, int n_q, int n_k,
                                const char *const *row_names, const char *const *col_names);

/* Prints the same to stdout, without a buffer. Not declared with ATTN_NO_STDIO. */
#ifndef ATTN_NO_STDIO
ATTNDEF void attn_mask_print(const float *m, int n_q, int n_k, const char *const *row_names,
                             const char *const *col_names);
#endif

/* ---- SHORT CALLS --------------------------------------------------------------------------------
   Tensors are contiguous [batch][row][heads*head_dim], already projected. Calls use the best
   backend (to choose one: attn_sdpa), and up to ATTN_STACK bytes of stack as workspace; larger
   calls use ATTN_MALLOC with a NULL user. Thread safe: calls may run at once if their outputs
   differ. A batch, n or n_q of 0 is legal: nothing is written. */

/* Self-attention: every row attends to the rows of its sequence.
   out, q, k, v  [batch][n][heads*head_dim]; out may not overlap the others
   causal        0 or 1: row i sees keys 0..i
   lengths       [batch], 0..n: later keys are hidden, later rows are zeros; NULL: all n
   mask          [batch][n][n] additive, from the builders above or the caller; NULL: none
   Errors: NULL, SIZE, LENGTHS, OPTION (causal), OVERLAP, OVERFLOW, MEMORY, ALIGN. */
ATTNDEF attn_status attn_self(float *out, const float *q, const float *k, const float *v, int batch,
                              int n, int heads, int head_dim, int causal, const int *lengths,
                              const float *mask);

/* Cross-attention: every row attends to another sequence, as in an encoder-decoder model.
   out, q          [batch][n_q][heads*head_dim]
   k, v            [batch][n_k][heads*head_dim]; n_k 0: every row is empty, so out is zeros
   source_lengths  [batch], 0..n_k: later keys are hidden; NULL: all n_k
   mask            [batch][n_q][n_k] additive; NULL: none
   Not causal: positions of the two sequences are unrelated.
   Errors: as attn_self, except OPTION. */
ATTNDEF attn_status attn_cross(float *out, const float *q, const float *k, const float *v,
                               int batch, int n_q, int n_k, int heads, int head_dim,
                               const int *source_lengths, const float *mask);

/* ---- FULL CALL ----------------------------------------------------------------------------------
   One struct with all options. 0 is the default of every option. batch, n_q, n_k, heads and
   head_dim have no default: set them with attn_args_for. */
typedef enum attn_layout {
    ATTN_BSHD,                            /* [batch][row][head][x] */
    ATTN_BHSD                             /* [batch][head][row][x]: PyTorch's SDPA, ggml, MLX */
} attn_layout;
typedef enum attn_causal {
    ATTN_CAUSAL_NONE,
    ATTN_CAUSAL_BOTTOM_RIGHT,             /* 1: flash-attention's causal, MLX's "causal" */
    ATTN_CAUSAL_TOP_LEFT                  /* 2: PyTorch's and ONNX's is_causal. The same with as
                                             many rows as keys */
} attn_causal;
typedef enum attn_align { ATTN_ALIGN_TOP_LEFT, ATTN_ALIGN_BOTTOM_RIGHT } attn_align;
typedef enum attn_stage {                 /* NOT the numbers of ONNX's qk_matmul_output_mode: */
    ATTN_PROBABILITIES,                   /* after the softmax (ONNX: 3) */
    ATTN_SCORES_RAW,                      /* scale * (q . k) (ONNX: 0) */
    ATTN_SCORES_CAPPED,                   /* after softcap (ONNX: 1) */
    ATTN_SCORES_BIASED                    /* after biases and mask are added (ONNX: 2) */
} attn_stage;
typedef enum attn_backend {
    ATTN_AUTO, ATTN_SCALAR, ATTN_SSE2, ATTN_AVX2, ATTN_AVX512, ATTN_NEON, ATTN_WASM,
    ATTN_RVV, ATTN_WASM_FMA
} attn_backend;
typedef struct attn_kv attn_kv;

/* Task executor. OpenMP example:
       void run(void *pool, int n, void (*task)(void *, int), void *arg)
       { (void)pool;
         #pragma omp parallel for schedule(dynamic)
         for (int i = 0; i < n; i++) task(arg, i); }
       attn_exec exec = { NULL, omp_get_max_threads(), run };
   The result does not depend on the executor: tasks may run in any order, on any threads, or one
   after another. */
typedef struct attn_exec {
    void *pool;                           /* passed to run */
    int width;                            /* max tasks at once, >= 1; work memory grows with it,
                                             results do not change */
    /* runs task(arg, 0) .. task(arg, n - 1) and returns when all are done */
    void (*run)(void *pool, int n, void (*task)(void *arg, int i), void *arg);
} attn_exec;

/* Words in quotation marks are names in other libraries. */
typedef struct attn_args {
    float *out;                           /* [batch][n_q][heads][v_head_dim]; layout and strides may
                                             change this, here and below */
    const float *q;                       /* [batch][n_q][heads][head_dim] */
    const float *k, *v;                   /* [k_batch][n_k][kv_heads][head_dim or v_head_dim] */
    const attn_kv *kv;                    /* NULL: k and v; else a cache, with k and v NULL. For
                                             new rows of a sequence set causal or align to
                                             bottom-right; otherwise row 0 is at position 0 */
    int batch, n_q;                       /* batch 0 or n_q 0: NOTHING is written, and ATTN_OK is
                                             returned. With q_cum, n_q 0 means the longest entry */
    int n_k;                              /* rows of k and v; 0: every row is EMPTY, out is zeros
                                             (with carry_in: its states are finished or copied).
                                             With k_cum or kv: columns of masks and weights, where 0
                                             means the longest entry */
    int heads, kv_heads;                  /* heads >= 1; kv_heads 0: heads, else a divisor of heads
                                             (grouped or multi-query, "enable_gqa") */
    int head_dim, v_head_dim;             /* head_dim >= 1; v_head_dim 0: head_dim. With kv, these
                                             two and kv_heads may be 0, which means those of the
                                             cache */
    attn_layout layout;                   /* 0: ATTN_BSHD */
    /* {batch, row, head} in floats, for either layout. 0: no gap after the inner dimensions. The
       elements of a head are contiguous; otherwise any order works ([row][batch][head]).
       Packed QKV: set only row = 3*heads*head_dim. Entries that share K and V: k_map, not a stride
       of 0. */
    ptrdiff_t q_stride[3], k_stride[3], v_stride[3], out_stride[3];
    float scale;                          /* 0: 1/sqrt(head_dim); T5: 1 */
    float softcap;                        /* 0: none */

    /* Row i is at position i + pos: POSITIONS in the manual. 8 keys, the first 3 padding (k_starts
       3), 2 rows, bottom-right: the rows are at 6 and 7, and the first sees keys 3..6. */
    attn_causal causal;                   /* 0: none */
    attn_align align;                     /* for causal NONE with window, ALiBi or rel_bias; 0:
                                             top-left */
    int q_pos;                            /* 0. ADDED to the alignment: with bottom-right, which
                                             counts the earlier keys already, leave it 0 */
    const int *q_pos_each;                /* NULL: 0 for all, else [batch] */
    int window_left, window_right;        /* keys INCLUDING the row's own: 1,1 = only itself; 0:
                                             unlimited. Mistral W: left W. flash-attention's
                                             "window_size" (l, r) is l+1, r+1, and its -1 is 0.
                                             Works without causal */

    /* Lengths; all are indexed by the QUERY entry b. */
    const int *q_lengths;                 /* [batch] NULL: n_q; rows past it are zeros. Hides no
                                             keys: set k_lengths also */
    /* Keys k_starts[b] .. k_starts[b] + k_lengths[b] - 1: a first index ("leftpad_k") and a number
       of keys ("seqused_k", "cache_seqlens", "nonpad_kv_seqlen"). Chunks are counted from the
       start. With kv: no k_starts; k_lengths may be less than an entry has. */
    const int *k_starts, *k_lengths;      /* [batch] NULL: from 0; to the end */
    /* Ragged, "cu_seqlens": entry b is rows cum[b] .. cum[b+1]-1; an entry may have none. q_cum
       excludes q_lengths, k_cum excludes k_starts, k_lengths, k_map and kv. n_q and n_k then size
       only mask, weights and lse; 0: the longest entry; larger is allowed. */
    const int *q_cum, *k_cum;             /* [batch+1] NULL: not ragged */
    const int *k_map;                     /* [batch] K/V entry read by b, "cache_batch_idx", for
                                             beams that share one memory; NULL: b */
    int k_batch;                          /* K/V entries, 0: batch */

    /* Masks and biases, [batch][heads][n_q][n_k]. In a shape {batch, heads, rows} each dimension is
       full, or 1: shared. Strides {batch, head, row} count elements; 0: no gap after the inner
       dimensions; strides of shared dimensions are not used. Elements of a row are contiguous (copy
       an expanded last axis of stride 0); otherwise any order works. In a buffer
       [batch][1][max][max]: shape {batch, 1, n_q}, stride {max*max, 0, max}. */
    const float *mask;                    /* NULL: none; -inf hides, other values are added, -1e9
                                             included. A float "attn_mask" (PyTorch, ONNX), ggml's
                                             mask */
    int mask_shape[3];                    /* 0,0,0: {1, 1, n_q};  key padding: {batch, 1, 1} */
    ptrdiff_t mask_stride[3];
    const unsigned char *keep;            /* NULL: none; nonzero = attend, 0 = hidden. A boolean
                                             "attn_mask" (PyTorch's SDPA, ONNX); the masks of
                                             nn.MultiheadAttention have the opposite polarity */
    int keep_shape[3];                    /* 0,0,0: {1, 1, n_q} */
    ptrdiff_t keep_stride[3];
    const float *bias;                    /* NULL: none; added; -inf hides */
    int bias_shape[3];                    /* 0,0,0: {1, heads, n_q} */
    ptrdiff_t bias_stride[3];
    const float *alibi_slopes;            /* [heads] NULL: none; adds -slope * |pos(i) - j|,
                                             exact up to 2^24 */
    /* A bias by distance (T5, Chronos, Swin in one dimension) without a matrix: for key j and
       row i, d = j - pos(i), adds the number at index d + rel_extent; keys farther away use the
       first or the last number. -inf hides. Same bits as a matrix of these numbers, and no work
       memory. If there is no mask, keep, bias or -inf, a call takes 1.01 to 1.05 times as long as
       without rel_bias (512 x 512, 8 x 64, Zen 3). */
    const float *rel_bias;                /* [heads][2*rel_extent+1] NULL: none */
    int rel_extent;                       /* with rel_bias, 0 .. 2^30 - 512; 0: one number per
                                             head */
    const float *sinks;                   /* [heads] NULL: none; an additional logit, only in the
                                             denominator */

    /* Additional outputs; none changes a bit of out. */
    float *weights;                       /* NULL, or [batch][heads][n_q][n_k] out: a second pass
                                             over the keys, divided among threads by rows and heads
                                             only */
    /* The heads to write, ascending, each 0 .. heads - 1; `weights` is then
       [batch][n_weights_heads][n_q][n_k]. Heads not listed cost nothing, except with raw and capped
       scores if they share a K/V head or a block with a listed one. */
    const int *weights_heads;             /* [n_weights_heads] NULL: all. Without weights:
                                             ATTN_E_CONFLICT */
    int n_weights_heads;                  /* with weights_heads, 1 .. heads */
    /* Default: probabilities, which are 0 at hidden keys. BIASED has -inf at hidden keys. RAW and
       CAPPED also have scores of hidden keys, whose K is therefore read, and -inf only at keys and
       rows that do not exist (ONNX has scores there). */
    attn_stage weights_stage;
    float *lse;                           /* NULL, or [batch][heads][n_q] out, "softmax_lse": sink
                                             included; -inf for an empty row */
    size_t *masked_rows;                  /* NULL, or out: number of (batch, head, row) triples that
                                             masks leave empty */

    /* Attention in parts: STATES below defines states and where to cut. */
    const float *carry_in;                /* NULL: empty; else the states after all keys before
                                             those of this call */
    float *carry_out;                     /* NULL: finish; else states out, and `out` is not written
                                             (may be NULL). May equal carry_in */
    int parts;                            /* 0: one state per row; n: carry_out is
                                             [n][batch][heads][n_q][..], a state for each chunk of
                                             128 keys */

    /* Execution. */
    const attn_exec *exec;                /* NULL: this thread */
    attn_backend backend;                 /* 0: best here */
    void *work;                           /* NULL: ATTN_MALLOC(user, n); any alignment */
    size_t work_size;                     /* of work, at least attn_sdpa_workspace() */
    void *user;                           /* for ATTN_MALLOC, ATTN_FREE and ATTN_REFUSED */
} attn_args;

/* Returns zeroed arguments with these sizes. They are parameters, so the compiler reports a missing
   one. With a cache n_k is 0. Thread safe. */
ATTNDEF attn_args attn_args_for(int batch, int n_q, int n_k, int heads, int head_dim);

/* Attention. out, weights, lse, masked_rows and work may not overlap an input or each other. q, k,
   v and out may be columns of one buffer, side by side in rows of one stride, if all larger strides
   are multiples of it. Thread safe: writes only its outputs and work. */
ATTNDEF attn_status attn_sdpa(const attn_args *a);

/* Returns the bytes of work that attn_sdpa needs for these arguments, or SIZE_MAX if sizes or
   options are wrong (an allocation of that size fails); the reason goes to ATTN_REFUSED. Depends on
   sizes, options and which pointers are set, not on their contents (except the capacity of a cache,
   and q_cum, k_cum if n_q, n_k are 0), and never shrinks when n_q, n_k or batch grow: call it once,
   for the largest call. window_left does not change it. Thread safe. */
ATTNDEF size_t attn_sdpa_workspace(const attn_args *a);

/* Runs the checks of attn_sdpa without running the call. Describes the error and its reason, or how
   the call will run: "these arguments are fine: ...". Also names the first row whose window_left
   reaches keys that the cache has forgotten. why may be NULL; at most why_size bytes are written,
   terminated unless why_size is 0. Writes nothing else and does not call ATTN_REFUSED. Thread
   safe. */
ATTNDEF attn_status attn_check(const attn_args *a, char *why, size_t why_size);

/* Returns the number of backends usable on this machine; writes at most max of them to list (may be
   NULL), best first. Thread safe. */
ATTNDEF int         attn_backends(attn_backend *list, int max);
ATTNDEF const char *attn_backend_name(attn_backend backend);  /* a literal: "avx2", "unknown" */

/* ---- STATES -------------------------------------------------------------------------------------
   Attention in parts: for keys that do not fit in memory, for a prefix that many continuations
   share, or for keys on several machines. The state of a row after the keys so far is
   ATTN_STATE(v_head_dim) floats:

       M       the largest score; -inf before the first key
       L       the sum of exp(s - M)
       seen    1, or 0 if the row has seen no key; then nothing else of the state is read
       spare   never read, written as 0
       O       [v_head_dim] the sum of exp(s - M) * v

   carry_in and carry_out are [batch][heads][n_q] such states, contiguous, for either layout. They
   are plain floats: store them, rearrange them, or send them to a machine with the same byte order.
   The state of a row that has seen no key is -inf, 0, 0, 0, zeros. Rows of padding (q_lengths, or
   after the rows of a ragged entry) always have this state, for any carry_in. A NaN row has a NaN
   in both M and L. An output with its lse (flash-attention, vLLM, ring attention) becomes a state:
   M = lse, L = 1, O = out, seen = 1, but seen = 0 if lse is -inf (flash-attention: +inf).
   flashinfer's lse has base 2: multiply by ln 2 first.

       for (x = 0; x < n_k; x += piece) {          // piece: a multiple of 128; row: floats per key
           a.k = k + x*row;  a.v = v + x*row;  a.n_k = n_k - x < piece ? n_k - x : piece;
           a.q_pos = pos - x;                      // of row 0, relative to the first key given
           a.mask = mask + x;                      // with a mask [n_q][n_k],
           a.mask_stride[2] = n_k;                 // whose rows are longer than a piece
           a.carry_in = x > 0 ? states : NULL;  a.carry_out = states;
           attn_sdpa(&a);
       }
       a.carry_in = states;  a.carry_out = NULL;  a.out = out;
       a.n_k = 0;                                  // no more keys: finish
       attn_sdpa(&a);

   The last piece may also finish, with carry_out NULL and out set.

   WHERE TO CUT. Pieces cut at multiples of 128 keys, counted from the first key that exists, give
   the bits of one call over all keys: on every backend, with plain rows, ragged ones, k_map or
   caches. Other cuts agree to rounding.
   POSITIONS, and columns of mask, keep and bias, count from the first key given, as in the loop
   above. Alternatively k_starts and k_lengths select the piece, and everything else stays the same.
   Bottom-right counts from the end of the keys given: use top-left and q_pos for pieces.
   sinks, lse, masked_rows and probabilities belong to the call that finishes: with carry_out they
   are ATTN_E_CONFLICT. Without it, masked_rows counts the rows that saw no key in any piece;
   probabilities are written for the keys of the last piece only, normalised over all keys. Score
   stages work in every piece.
   parts: each chunk starts from empty states, and chunk i of an entry, counted from its first key
   (without forgotten keys of a cache), writes its states to part i. So several threads or machines
   can work at once; attn_fold combines the parts. Parts without a chunk have seen no key. Fewer
   parts than chunks of the longest entry: ATTN_E_SIZE. With carry_in: ATTN_E_CONFLICT.

   carry_in may be carry_out; no other overlap. n_k may be 0, without kv: states are then copied, or
   finished; q is required, and lengths and starts of keys are 0 or NULL.
   attn_self_step supports states; layers and attn_self, attn_cross do not. */
#define ATTN_STATE(v_head_dim) ((size_t)(v_head_dim) + 4)

/* Folds n parts, states [n][batch][heads][n_q][ATTN_STATE(v_head_dim)], in order after a->carry_in
   (NULL: empty) into a->carry_out, which may be carry_in but not overlap states. Same bits as calls
   that fold these chunks directly. n 0: copies.
   Reads only these members of *a: batch, n_q, heads, v_head_dim (0: that of kv, else head_dim),
   q_lengths, q_cum, backend, exec and user. Needs no work and never allocates. Thread safe: writes
   only carry_out.
   Errors: NULL, SIZE, OPTION, LENGTHS, CONFLICT (q_cum and q_lengths), OVERFLOW, OVERLAP, BACKEND,
   ALIGN. */
ATTNDEF attn_status attn_fold(const attn_args *a, const float *states, int n);

/* Merges `states` pairs of states of disjoint sets of keys: to[i] becomes the state of the keys of
   both to[i] and from[i]. The sets may be in any order, so results agree with those of one call
   only to rounding; the same merges give the same bits on every machine. For trees, MPI_Op and the
   like. Thread safe: writes only `to`, in the calling thread.
   Errors: NULL, SIZE (v_head_dim < 1), OVERFLOW, OVERLAP (also to == from), ALIGN. */
ATTNDEF attn_status attn_merge(float *to, const float *from, size_t states, int v_head_dim);

/* ---- STORAGE ------------------------------------------------------------------------------------
   Caches and weights may be stored in 16 bits instead of 32: memory bandwidth is what limits their
   use. Arithmetic stays in float: a value is rounded once, to nearest even, on store; results are
   bit-identical to float storage of the rounded values.

   ATTN_Q8 in a cache is for decoding over long caches: for keys and values, or for keys alone with
   values in 16 bits. It takes 0.26 (head_dim 128) or 0.27 (64) of the memory of floats. On
   N(0, 1) data outputs differ from those of floats by 0.9 % (rms), with half by 0.03 %. One number
   that is much larger than the others of its head makes the others inaccurate: see "Caches in 8
   bits" in examples/RECIPES.md.
   Each head of a key or value is stored as one scale, s = its largest magnitude / 127, and the
   integers n[c] nearest to x[c] * (127 / largest magnitude), to even in a tie. With keys in 8 bits
   the query, times `scale`, is rounded in the same way. The sum of the products of integers is
   exact; the score is this sum * (sq * sk), where sq and sk are the scales of query and key. So its
   bits are the same on every backend. Before its rounding a score differs from that of floats by at
   most
       sq / 2 * sum |k[c]| + sk / 2 * sum |q[c]| + head_dim * sq * sk / 4
   Rounding the values changes an output by less than half of their largest scale; the differences
   of the scores have an additional effect. A head with a NaN or an infinity is read as NaN, a head
   whose magnitudes are all below 2^-119 as 0.

   ATTN_Q8 of a linear or layer: each output's weights are cut into blocks of 32 inputs, and each
   block is stored as above, in 0.28 of the memory of floats. In a call each block of each row of x
   is rounded in the same way. The sum of the products of integers of a block is exact; it is
   multiplied by sx * sw and added in one fma, so the bits are the same on every backend with fma
   and for any number of rows. On N(0, 1) data outputs differ from those of floats by 0.8 % (rms).
   If sx * sw is a normal float, a block adds at most
       sx / 2 * sum |w| + sw / 2 * sum |x| + 8 * sx * sw
   to the error of an output. Outliers in x spoil only their block.
   ATTN_Q8_0 is a format of weights as given (w_storage), as in the tensors of type Q8_0 of GGUF
   files: a block of 32 inputs is a scale d, a half in the byte order of the machine, then 32 signed
   bytes n. A block has 34 bytes and may begin at any address. An output has n_in / 32 blocks, so
   n_in must be a multiple of 32. The weights d * n are exact in float and are rounded once to
   `storage`. ATTN_Q8 keeps d and n without rounding (d < 0: sw of the bound above is -d). Only a
   block with the byte -128, or with a d that is NaN or infinite, is rounded like floats. */
typedef enum attn_storage {
    ATTN_F32,                             /* float, the default: nothing is rounded */
    ATTN_F16,                             /* IEEE half: 11 bits. Infinite from 65520 on; fewer bits
                                             below 2^-14, 0 below 2^-25 */
    ATTN_BF16,                            /* bfloat16, the upper half of a float: 8 bits, range of
                                             float */
    ATTN_Q8,                              /* integers -127 .. 127, and a float scale for each head
                                             of a key (head_dim to 1040), or for 32 weights of an
                                             output. Not for weights as given (w_storage) */
    ATTN_Q8_0                             /* blocks of GGUF files: only for weights as given */
} attn_storage;

/* Returns the bytes of a row of n values in this format; SIZE_MAX if the format is invalid or
   ATTN_Q8_0, or if the size overflows. */
ATTNDEF size_t      attn_stored_bytes(size_t n, attn_storage storage);

/* Convert one row of n floats to a storage format, and back, exactly as caches, linears and layers
   do. A value of 16 bits is a uint16_t in the byte order of the machine; ATTN_F32 copies. Widening
   is exact. ATTN_Q8: the scale, a float, then n signed bytes; widening rounds n[c] * s once; for a
   linear a row is one block of 32 weights. A NaN converted to or from 16 bits keeps its sign and
   the upper bits of its payload; it becomes a quiet NaN, except from bfloat16 to float, where no
   bit changes. Same bits on every machine. `to` and `from` may not overlap, except for ATTN_F32
   with to == from. n 0 is legal: only storage is checked. Thread safe: writes only n values at
   `to` and allocates nothing.
   Errors: OPTION (storage), OVERFLOW (n), NULL, ALIGN (of floats, or of 16 bits), OVERLAP. */
ATTNDEF attn_status attn_narrow(void *to, const float *from, size_t n, attn_storage storage);
ATTNDEF attn_status attn_widen(float *to, const void *from, size_t n, attn_storage storage);

/* ---- CACHE --------------------------------------------------------------------------------------
   Stored keys and values, packed in the order in which the kernels read them. One type serves a
   decoder's own past (append per token) and an encoder's output (filled once). The `batch` entries
   grow independently; attn_args.kv reads them, with the same bits as from plain rows.

   A cache is a pool of pages of 128 keys, and for each entry a list of pages. An append takes pages
   from the pool. Entries with a common beginning (copies, beams) share pages; a partly filled last
   page is copied on write. attn_kv_forget returns whole pages of old keys. Where a key is stored
   changes no bit of any result.

   v_in_k: V is the front of K. Only keys are appended (v NULL) and stored. The results have the
   bits of a cache whose values are the first v_head_dim numbers of each key (in 8 bits with the
   scale of the key). v_head_dim is at most head_dim; both have one storage format. Each call packs
   the keys again, so use it only with many query heads per K/V head. Layers reject such a cache,
   because they compute values.

   CONTINUOUS BATCHING: batch is the number of places for requests. For each step, append the new
   rows of each request to its entry, then call attn_sdpa once for all entries, with kv, q_cum (no
   rows for an idle entry) and causal bottom-right. attn_kv_reset frees the place of a request that
   has ended. attn_self_step with q_cum appends and attends in one call.

   The caller allocates the attn_kv; the memory it points to belongs to the cache. Do not copy an
   attn_kv by value: both copies would write the same memory with different lengths.
   Thread safety: any number of readers at once (attn_sdpa, attn_mha_cross_step, attn_mha_self_look,
   attn_kv_read, attn_kv_save). A writer (append, truncate, reset, keep, forget, reorder, copy,
   load, attn_self_step, attn_mha_self_step, attn_mha_cross_fill) must run alone. Every call
   but attn_kv_init and attn_kv_free rejects a zeroed or freed attn_kv (ATTN_E_NULL). */
typedef struct attn_kv_args {
    int batch, kv_heads, head_dim, v_head_dim;      /* all >= 1, but v_head_dim 0: head_dim */
    int capacity;                         /* max keys of an entry at a time, >= 1. Below 128 a page
                                             has room for this many, rounded up to 16 */
    int pages;                            /* of all entries together, 128 keys each; 0: enough for
                                             `batch` full entries. Memory is touched only as keys
                                             arrive: a large pool costs only address space */
    attn_storage k_storage, v_storage;    /* formats of stored keys and values: set BOTH; 0: float,
                                             not rounded. Keys are more sensitive to rounding */
    int v_in_k;                           /* 1: V is the front of K (DeepSeek's MLA), see above */
    void *mem;  size_t mem_size;          /* NULL: ATTN_MALLOC; else attn_kv_size bytes, any
                                             alignment, freed by the caller */
    void *user;                           /* for ATTN_MALLOC, ATTN_FREE and ATTN_REFUSED */
} attn_kv_args;
struct attn_kv {
    attn_kv_args shape;                   /* read only; v_head_dim and pages resolved */
    int *lengths;                         /* [batch] keys appended so far, including forgotten ones:
                                             the position of the next key; read only */
    int free_pages;                       /* pages that no entry uses; read only */
    /* private */
    int page_keys, entry_pages;           /* keys of a page; max pages of an entry */
    size_t page_size, page_v;             /* bytes of a page; offset of its V */
    size_t k_row, v_row;                  /* bytes of a row of K, and of V, without its scale */
    size_t k_scales, v_scales;            /* offsets of their scales in a page; 0: none */
    int *gaps;                            /* [batch][2]: keys from .. to - 1 are forgotten */
    int *table;                           /* [batch][entry_pages]: pages, in key order */
    int *holders;                         /* [pages] number of entries that share a page */
    int *idle;                            /* [pages] first the unused pages */
    int *scratch;                         /* [batch][entry_pages + 3] */
    float *memory;                        /* pages, followed by all these ints */
    size_t bytes;                         /* total */
    void *own;                            /* memory that free releases, or NULL */
};

#ifndef ATTN_NO_CACHE
/* Returns the bytes of mem that attn_kv_init needs for these sizes; SIZE_MAX if they are invalid or
   overflow. Ignores mem and mem_size. */
ATTNDEF size_t      attn_kv_size(const attn_kv_args *a);

/* Makes *c an empty cache, ignoring its contents; if it is a cache already, free that first. After
   an error *c is zeroed, so attn_kv_free is allowed. Errors: NULL, SIZE, OPTION, CONFLICT (v_in_k
   with another v_storage), OVERFLOW, WORK (mem_size too small), MEMORY. */
ATTNDEF attn_status attn_kv_init(attn_kv *c, const attn_kv_args *a);
ATTNDEF void        attn_kv_free(attn_kv *c);               /* NULL, zeroed, freed twice: allowed */

/* Appends n rows after the keys of an entry, or n rows to every entry (entry -1). The rows are
   copied. The cost does not depend on the keys already stored.
   k           [n][kv_heads][head_dim], of one entry; entry -1: [batch][n][kv_heads][head_dim]
   v           the same with v_head_dim; NULL with v_in_k, even if n is 0. Both may be NULL if n
               is 0
   row_stride  floats from row to row, of k and of v; 0: contiguous, as above. Row i begins at
               i * row_stride; entry -1: row i of entry b at (b * n + i) * row_stride. A packed
               [q | k | v] needs no copy, with D = heads*head_dim and G = kv_heads*head_dim:
               attn_kv_append(&c, -1, qkv + D, qkv + D + G, n, D + 2*G)
   Errors: FULL (an entry or the pool has no room: no entry grows), MAP (no such entry), STRIDE
   (shorter than a row), OVERLAP (with the memory of c), CONFLICT (v beside v_in_k), NULL, SIZE,
   OVERFLOW, ALIGN. */
ATTNDEF attn_status attn_kv_append(attn_kv *c, int entry, const float *k, const float *v, int n,
                                   ptrdiff_t row_stride);

/* Appends and attends in one call, for a decoder with separate projections (attn_mha_self_step
   includes them). Appends the rows a->k, a->v to c; then row i of a->q attends to all keys up to
   its own: causal bottom-right. Same bits as attn_kv_append and attn_sdpa. After an error nothing
   was appended or computed.
   q, k, v, out         n_q rows of each entry, by layout and strides: k and v hold the NEW rows
                        (with v_in_k k alone; v is NULL)
   batch                that of c. heads is required; kv_heads, head_dim, v_head_dim, k_batch: 0, or
                        as in c
   q_lengths or q_cum   fewer rows for some entries, for q, k, v and out
   n_k                  columns of mask, keep, bias, weights; 0: the longest entry after the append
   kv                   NULL, or c
   causal               0 or ATTN_CAUSAL_BOTTOM_RIGHT, with the same meaning
   k_lengths, k_starts, k_map, k_cum, align, causal top-left: ATTN_E_CONFLICT. Everything else as in
   attn_sdpa, including errors, and FULL.
   work: call attn_sdpa_workspace once, with kv = c and without k, v and their strides; the largest
   n_q, with n_k 0, is enough for every step. */
ATTNDEF attn_status attn_self_step(attn_kv *c, const attn_args *a);

/* Removes all but the first `length` keys of an entry, or of all entries (entry -1), for example
   after a rejected draft. The next append continues there, as if the removed keys had never been
   appended. reset is truncate to 0.
   Errors: LENGTHS (longer than the entry, or key length - 1 is forgotten), MAP (no such entry),
   NULL. */
ATTNDEF attn_status attn_kv_truncate(attn_kv *c, int entry, int length);
ATTNDEF attn_status attn_kv_reset(attn_kv *c, int entry);

/* Keeps the accepted path of a tree of guesses that was checked in one step: truncates an entry to
   its first `from` keys and appends `n` of those after them, without needing their rows. rows [n]
   are indices, from <= rows[0] < rows[1] < .. < lengths[entry]; key rows[i] becomes key from + i.
   Same bits as attn_kv_truncate and attn_kv_append of these rows, if keys were rotated by their
   depth in the tree (rope_pos). This holds for later calls: in the step that checked the tree,
   outputs of branches after the first agree only to rounding with those of a sequence without
   branches, because their keys were at other indices. n 0: truncate; rows may be NULL.
   Errors: LENGTHS (`from` as in truncate, and with n > 0 after all forgotten keys; rows that do not
   ascend, or do not exist), SIZE (n < 0), FULL (no page to copy a shared page to), MAP (no such
   entry), NULL, OVERLAP (rows in the memory of c), ALIGN. */
ATTNDEF attn_status attn_kv_keep(attn_kv *c, int entry, int from, const int *rows, int n);

/* Forgets old keys of an entry, or of all entries (entry -1): for a sliding window, or a
   conversation longer than the cache. Returns to the pool all pages completely within keys
   pinned .. before - 1; all other keys stay. (A page begins at a multiple of 128.) The first
   `pinned` keys stay permanently (attention sinks); 0: none.
   Positions do not change: lengths[entry] keeps counting, mask, bias and weights keep their
   columns, causal and windows keep their meaning. A forgotten key is hidden from every row. So a
   row whose window (window_left, or a mask) excludes the forgotten keys has the bits of a complete
   cache; a row whose window reaches them has other bits (attn_check and ATTN_DEBUG report this for
   window_left).
   Sliding window: before each step of n rows, forget with before = lengths[entry] + 1 - window.
   Then a capacity of window + 126 + n is enough, plus `pinned` rounded up to 128.
   The forgotten keys of an entry are one contiguous range: each call must extend it, not begin a
   second one.
   before <= pinned, or negative: nothing is forgotten.
   Errors: LENGTHS (pinned negative; pinned or before more than lengths[entry]; a second range), MAP
   (no such entry), NULL. */
ATTNDEF attn_status attn_kv_forget(attn_kv *c, int entry, int pinned, int before);

/* Beam search: entry b becomes the former entry map[b]. Works in place; a map may name an entry
   several times. Moves no keys: beams share pages. Errors: MAP, NULL, OVERLAP, ALIGN. */
ATTNDEF attn_status attn_kv_reorder(attn_kv *c, const int *map /* [batch] */);

/* Entry `to` becomes the first `length` keys of entry `from`: one prompt for many answers. Copies
   no keys: both share pages. from == to: truncate.
   Errors: MAP (no such entry), LENGTHS (longer than `from`, or key length - 1 is forgotten),
   NULL. */
ATTNDEF attn_status attn_kv_copy(attn_kv *c, int to, int from, int length);

/* Reads keys first .. first + n - 1 of an entry as rows of floats, k [n][kv_heads][head_dim],
   v [n][kv_heads][v_head_dim]; either may be NULL.
   Errors: LENGTHS (some are missing), MAP, SIZE (n < 0), OVERLAP, ALIGN, NULL. */
ATTNDEF attn_status attn_kv_read(const attn_kv *c, int entry, int first, int n, float *k, float *v);

/* An entry as bytes, to store or send: attn_kv_save writes attn_kv_saved(c, entry) bytes,
   attn_kv_load restores them into an entry of a cache. They contain shape, length and forgotten
   keys; batch, capacity and pages may differ. They are little-endian on every machine, with a
   version and a checksum, and may come from untrusted sources: damaged or foreign bytes are
   rejected and change nothing. The same rows give the same bytes.
   Errors of save: WORK (size too small), MAP, OVERLAP, NULL. Errors of load: BYTES (incomplete, of
   another version, damaged), SIZE (another shape), FULL, MAP, OVERLAP, NULL. */
ATTNDEF size_t      attn_kv_saved(const attn_kv *c, int entry);  /* SIZE_MAX: wrong arguments */
ATTNDEF attn_status attn_kv_save(const attn_kv *c, int entry, void *bytes, size_t size);
ATTNDEF attn_status attn_kv_load(attn_kv *c, int entry, const void *bytes, size_t size);
#endif /* ATTN_NO_CACHE */

#ifndef ATTN_NO_LAYERS
/* ---- LAYERS ------------------------------------------------------------------------------------
   Attention WITH its projections. (attn_self and attn_cross also have several heads, but take q, k,
   v already projected.) All functions except init and free only read a linear or layer: any number
   of threads may share it. */

/* A linear: y = x W^T + b, with W as in checkpoints, [n_out][n_in]. It can be used alone, for
   example in a feed-forward network. A row of y has the same bits for any number of rows, threads
   and calls. Init packs the weights: it copies them in the order in which the kernels read them,
   about 1 ms per million weights. The originals may be freed afterwards. */
typedef struct attn_linear_args {
    int n_in, n_out;                      /* >= 1 */
    const void *w;                        /* [n_out][n_in] in the format w_storage; copied. NULL
                                             with packed */
    const float *b;                       /* [n_out]; copied. NULL: zeros */
    attn_storage w_storage;               /* format of w as given, not ATTN_Q8. 0: ATTN_F32 */
    attn_storage storage;                 /* format in which the weights are kept: wider ones are
                                             rounded once, to nearest even; b stays float. ATTN_Q8
                                             also rounds x in each call. 0: ATTN_F32 */
    const void *packed;                   /* NULL, or packed memory (below) instead of w and b: used
                                             without a copy, so it must live as long as the linear.
                                             64-byte aligned, as mapped files are; use aligned_alloc
                                             to read one */
    size_t packed_size;                   /* bytes at packed */
    void *mem;  size_t mem_size;          /* NULL: ATTN_MALLOC; else attn_linear_size bytes of the
                                             caller, any alignment, that live as long as the linear.
                                             Not used with packed */
    void *user;                           /* for ATTN_MALLOC, ATTN_FREE and ATTN_REFUSED */
} attn_linear_args;
typedef struct attn_linear {
    int n_in, n_out;                      /* read only */
    attn_storage storage;                 /* read only: format of the packed weights */
    /* private */
    const void *w;                        /* packed */
    const float *b;
    void *own, *user;                     /* memory that free releases, or NULL */
} attn_linear;

/* PACKED MEMORY. Init fills `mem` with a header of 128 bytes, the packed weights and the biases. If
   mem begins at a multiple of 64, all of its attn_linear_size bytes are written, and they may be
   saved to a file. (The last 64 are room for other alignments, and may be cut off.) A later init
   with the same sizes and storage accepts them as `packed`, for example from a mapped file: it
   copies nothing, allocates nothing and only reads them. One file may contain several linears and
   layers one after another, because all sizes are multiples of 64.
   The same weights give the same bytes on every backend and machine of the same byte order. Memory
   of the other byte order, another layout, storage or size is rejected; the layout may change only
   with the version of this header. The rest of the header and the weights are not checked:
   damaged weights give other results, but nothing outside of `packed` is read. */

/* Returns the bytes of mem that an init with these sizes and this storage needs, a multiple of 64;
   SIZE_MAX if they are invalid, w_storage included, or overflow. Ignores pointers. */
ATTNDEF size_t      attn_linear_size(const attn_linear_args *a);

/* Makes *l, ignoring its contents; if it is a linear already, free that first. After an error *l is
   zeroed, so attn_linear_free is allowed. Errors: NULL, SIZE (also: packed has other sizes or
   storage; n_in is no multiple of 32 with ATTN_Q8_0), OPTION (storage, w_storage), CONFLICT (packed
   and w or b), BYTES (packed is no packed memory, or cut off), OVERFLOW, WORK (mem_size too small),
   MEMORY, ALIGN. */
ATTNDEF attn_status attn_linear_init(attn_linear *l, const attn_linear_args *a);

/* y [rows][n_out] from x [rows][n_in]; y may not overlap the weights, or x from its first row to
   its last, gaps between rows included.
   x_stride  floats from row to row of x; 0: n_in. It may be smaller than n_in, and nothing is read
             after the n_in floats of the last row. A convolution over time is a linear over
             overlapping rows: for an input [time][channels], weights [n_out][kernel][channels],
             n_in kernel * channels, x_stride step * channels
   exec      NULL: this thread
   Always uses the best backend; inside a layer, attn.backend chooses.
   Never allocates.
   Errors: NULL, SIZE, STRIDE (negative), OPTION (exec->width), OVERFLOW, OVERLAP, ALIGN. */
ATTNDEF attn_status attn_linear_run(const attn_linear *l, float *y, const float *x, int rows,
                                    ptrdiff_t x_stride, const attn_exec *exec);

/* Reads rows row .. row + n - 1 of the weights as floats, out [n][n_in]: the values as kept. With
   tied weights one linear is both the classifier and, by this call, the embedding. Thread safe for
   different out; never allocates. Errors: NULL, SIZE (n < 0; rows that do not exist), OVERFLOW,
   OVERLAP (out over the weights), ALIGN. */
ATTNDEF attn_status attn_linear_read(const attn_linear *l, int row, int n, float *out);
ATTNDEF void        attn_linear_free(attn_linear *l);       /* NULL, zeroed, freed twice: allowed */

/* Norms of separate rows:
       RMS     y = x / sqrt(mean(x^2) + eps) * weight + bias
       LAYER   y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias
   Sums are in double, in 16 lanes: value i in lane i mod 16. As long as nothing overflows or is
   denormal, the error of y is at most 2^-24 (|y| + 2 |y - bias|), for LAYER 2^-24 (|y| + 4 |y -
   bias|), even if the mean is 1000 times the deviation; backends without fma add 2^-24 |y - bias|.
   A row with a NaN is all NaN. With an infinity, LAYER is all NaN; RMS is NaN at the infinities and
   equals the bias at finite values. The same bits however rows are divided among calls, on any
   number of threads and on every backend with fma; without a bias on all backends. */
typedef enum attn_norm_kind { ATTN_NORM_RMS, ATTN_NORM_LAYER } attn_norm_kind;
typedef struct attn_norm_args {
    float *y;                             /* [rows][n]. May be x, with the same stride; any other
                                             overlap of y and x, first to last row, is rejected */
    const float *x;                       /* [rows][n] */
    int rows, n;                          /* n >= 1; rows 0: nothing is written */
    ptrdiff_t y_stride, x_stride;         /* floats from row to row; each 0: n. At least n */
    attn_norm_kind kind;                  /* 0: ATTN_NORM_RMS */
    const float *weight, *bias;           /* [n] NULL: ones; zeros. (Gemma: 1 + weight) */
    float eps;                            /* 0: 1e-6 (PyTorch's LayerNorm: 1e-5) */
    const attn_exec *exec;                /* NULL: this thread */
    attn_backend backend;                 /* 0: best here */
    void *user;                           /* for ATTN_REFUSED */
} attn_norm_args;

/* Thread safe: writes only y and never allocates.
   Errors: NULL, SIZE, STRIDE, OPTION (kind, eps, backend, exec->width), BACKEND, OVERFLOW, OVERLAP
   (y with x, weight or bias), ALIGN. */
ATTNDEF attn_status attn_norm(const attn_norm_args *a);

/* y = f(x), or f(x) * gate, value by value: activations of a feed-forward, without libm.
       GELU        x * (1 + erf(x / sqrt(2))) / 2: PyTorch's gelu
       GELU_TANH   x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2: "gelu_new",
                   "gelu_pytorch_tanh"
       SILU        x / (1 + exp(-x)): "swish"
   gate NULL: none. With SILU and a gate it is SwiGLU, with the others GeGLU; x is then the model's
   gate projection, and `gate` its up projection. If each row holds the two side by side (Phi 3),
   make one call per row. y may be x or gate; any other overlap of y with these is rejected. x and
   gate may overlap. n 0: nothing is written.
   The error of f is at most 2.4 ulp for GELU, 2.9 for GELU_TANH and SILU, where |f| >= 2^-126,
   except in the negative tail; the product with gate is rounded once. Backends without fma (SSE2,
   wasm): the error of f is at most 3e-7 |x|. In the negative tail f is +0:
                   for x below     where the magnitude of the formula is less than
       GELU        -13.2163944     5e-39
       GELU_TANH   -10.0010443     1.2e-37
       SILU        -87.3365402     1.1e-36
   f is denormal for denormal x; that of GELU also for x from -13.2163944 to -13.1462. f(-inf) = +0,
   f(inf) = inf, f(NaN) = NaN, f(-0) = +0.
   The same bits however the values are divided among calls, on any number of threads, on every
   backend with fma. Always uses the best backend. Thread safe: writes only y and never allocates.
   Errors: NULL, OPTION (kind, exec->width), OVERFLOW, OVERLAP, ALIGN. */
typedef enum attn_activation { ATTN_GELU, ATTN_GELU_TANH, ATTN_SILU } attn_activation;
ATTNDEF attn_status attn_activate(float *y, const float *x, const float *gate, size_t n,
                                  attn_activation kind, const attn_exec *exec);

/* Rotary embedding. rotary_dim components of a head are rotated, in rotary_dim/2 pairs; pair i
   turns by position * freqs[i].
   table       [positions][rotary_dim]. Row p is all cosines, then all sines:
               [cos(p * freqs[0]) .. cos(p * freqs[n-1]) | sin(p * freqs[0]) .. sin(p * freqs[n-1])]
               with n = rotary_dim/2
   freqs       [rotary_dim/2] radians per position, finite and below 65536 (MLX uses wavelengths,
               2 pi / freq); NULL: base^(-2i/rotary_dim)
   base        1 .. 1e300; 0: 10000; ignored with freqs
   Computed in integer arithmetic: same bits everywhere. Accurate to the rounding of a float, plus
   an error of the angle below 2^-40 radians (positions to 2^20) or a relative 2^-60. Hugging Face
   and Meta round frequency and angle to float first: below position 8192 their cosines are off by
   up to 5e-4, up to 16383 by 1e-3 (base 10000, 64 or 128 components; base 500000: 6e-4, 1.2e-3).
   positions 0 writes nothing. Errors: SIZE (positions negative, rotary_dim odd or below 2), OPTION,
   NULL, OVERFLOW, OVERLAP (table over freqs), ALIGN. */
ATTNDEF attn_status attn_rope_table(float *table, int positions, int rotary_dim,
                                    const float *freqs, double base);

/* The frequencies of a checkpoint, for attn_rope_table: transformers' inv_freq, rounded to float as
   there. Without them short texts seem correct, but long ones fail. Computed from integers and
   doubles without a library: same bits everywhere. In quotation marks: the names in config.json
   ("rope_parameters" or "rope_scaling"). With i = 0 .. rotary_dim/2 - 1:
       DEFAULT       f[i] = base^(-2i/rotary_dim)
       LINEAR        f[i] / factor
       LLAMA3        with s = (original * f[i] / (2 pi) - low) / (high - low), held in 0..1:
                     f[i] * (s + (1 - s) / factor)
       YARN          the same with s = 1 - (i - first) / (last - first), held in 0..1; pair `first`
                     makes `high` turns over `original` positions, pair `last` makes `low`
       LONGROPE      f[i] / factors[i]
       PROPORTIONAL  f[i] / factor for the first `rotated`/2 pairs, 0 for the others, which are not
                     rotated. rotary_dim is the whole head_dim. NOT the rotation of the first
                     `rotated` components, which form other pairs                             */
typedef enum attn_rope_kind {             /* "rope_type" */
    ATTN_ROPE_DEFAULT, ATTN_ROPE_LINEAR, ATTN_ROPE_LLAMA3, ATTN_ROPE_YARN, ATTN_ROPE_LONGROPE,
    ATTN_ROPE_PROPORTIONAL
} attn_rope_kind;
typedef struct attn_rope_freqs_args {     /* members that the kind does not use are ignored */
    attn_rope_kind kind;                  /* 0: ATTN_ROPE_DEFAULT */
    int rotary_dim;                       /* head_dim * "partial_rotary_factor", even; PROPORTIONAL:
                                             head_dim */
    double base;                          /* "rope_theta", as in attn_rope_table; 0: 10000 */
    double factor;                        /* "factor", 1 .. 1e9; 0: 1. LONGROPE, and YARN if the
                                             configuration has no factor:
                                             max_position_embeddings / original */
    double low, high;                     /* LLAMA3: "low_freq_factor", "high_freq_factor"; 0: 1, 4.
                                             YARN: "beta_slow", "beta_fast"; 0: 1, 32. low < high */
    int original;                         /* LLAMA3, YARN, LONGROPE:
                                             "original_max_position_embeddings", >= 2 */
    int untruncated;                      /* YARN: 1 if "truncate" is false: first and last are not
                                             rounded to whole pairs (gpt-oss) */
    double attention_factor;              /* YARN, LONGROPE: "attention_factor"; 0: by formula */
    double mscale, mscale_all_dim;        /* YARN: "mscale", "mscale_all_dim"; used if both are
                                             given (DeepSeek) */
    const float *factors;                 /* LONGROPE: [rotary_dim/2] "short_factor" up to
                                             `original` positions, "long_factor" beyond; each
                                             2^-15 .. 2^15 */
    int rotated;                          /* PROPORTIONAL: head_dim * "partial_rotary_factor", even;
                                             0: rotary_dim */
} attn_rope_freqs_args;

/* Computes the frequencies f of the kinds above.
   freqs      out: [rotary_dim/2], for attn_rope_table
   attention  NULL, or out: the factor on all cosines and sines, 1 except for YARN and LONGROPE.
              Multiplying the table by it gives the results of transformers: scores of rotated
              components are multiplied by its square
   Thread safe: writes only these two and allocates nothing. Errors: NULL, SIZE (rotary_dim or
   rotated odd or too large, original), OPTION (everything else), OVERLAP (freqs, attention,
   factors), ALIGN. */
ATTNDEF attn_status attn_rope_freqs(float *freqs, float *attention, const attn_rope_freqs_args *a);

typedef struct attn_rope_args {
    float *x;                             /* [batch][n][heads][head_dim], or by layout and strides;
                                             rotated in place */
    int batch, n, heads, head_dim;        /* n rows each; heads and head_dim >= 1 */
    int rotary_dim;                       /* 0: head_dim; else only the first rotary_dim components
                                             are rotated (GPT-NeoX, Phi, GLM) */
    attn_layout layout;                   /* 0: ATTN_BSHD */
    ptrdiff_t x_stride[3];                /* {batch, row, head} in floats, as in attn_args */
    const float *rope_table;              /* of attn_rope_table */
    int positions;                        /* rows of the table; must cover all positions */
    int rope_interleaved;                 /* 0: pairs (i, i + rotary_dim/2), as in Hugging Face's
                                             Llama weights; 1: (2i, 2i + 1), as in the paper and
                                             Meta's weights */
    int pos;                              /* >= 0; row i of entry b is at pos + pos_each[b] + i */
    const int *pos_each;                  /* [batch] NULL: 0. For padding on the left, minus its
                                             length: rows before position 0 are not rotated */
    const int *rope_pos;                  /* [batch][n] NULL: as above. Else the position of every
                                             row, instead of pos and pos_each (for a tree of guesses
                                             or a packed prompt). Negative: the row is not
                                             rotated */
} attn_rope_args;

/* Rotates x. Thread safe for different x. Errors: NULL, SIZE (also: a table that is too short),
   OPTION, CONFLICT (rope_pos and pos or pos_each), STRIDE, OVERFLOW, OVERLAP (x over the table, or
   over positions), ALIGN. */
ATTNDEF attn_status attn_rope(const attn_rope_args *a);

/* A layer accepts the weights of nn.MultiheadAttention unchanged. With D = heads*head_dim,
   G = kv_heads*head_dim, E = heads*v_head_dim and F = kv_heads*v_head_dim:
       w_q [D][d_model]   w_k [G][d_key]   w_v [F][d_value]   w_o [d_model][E]
       b_q [D]            b_k [G]          b_v [F]            b_o [d_model]
   or in_proj: w_in [D + G + F][d_model] in place of w_q, w_k, w_v, and b_in [D + G + F] in place of
   b_q, b_k, b_v: all rows of q, then k, then v. query_key_value of GPT-NeoX and BLOOM has rows
   [head][q, k, v][x] instead: reorder them first, or the results are wrong. */
typedef struct attn_mha_args {
    int d_model, heads;                   /* >= 1 */
    int kv_heads, head_dim;               /* 0: heads; 0: d_model/heads */
    int v_head_dim;                       /* of values and of what w_o reads; 0: head_dim */
    int d_key, d_value;                   /* width of the source of keys, 0: d_model; of values, 0:
                                             d_key */
    int q_only;                           /* 1: no keys: w_k, w_v and their biases are NULL; for
                                             self_look and cross_step (Gemma 4) */
    /* weights, biases and norms are copied; all NULL with packed */
    const void *w_q, *w_k, *w_v, *w_o;    /* in the format w_storage, as w_in and w_gate */
    const float *b_q, *b_k, *b_v, *b_o;   /* NULL: none */
    const void *w_in;                     /* NULL: none */
    const float *b_in;                    /* NULL: none. Also allowed with w_q, w_k, w_v (torch:
                                             kdim, vdim) */
    /* Output gate: the result of attention, before w_o, times 1/(1 + exp(-(w_gate x + b_gate))) */
    const void *w_gate;                   /* [gate_rows][d_model]; NULL: none */
    const float *b_gate;                  /* [gate_rows]; NULL: none */
    int gate_rows;                        /* 0: heads*v_head_dim, a factor per component
                                             (Qwen3-Next, 3.5); heads: a factor per head */
    attn_storage w_storage;               /* format of all w_ as given, not ATTN_Q8. 0: ATTN_F32 */
    attn_storage storage;                 /* format in which they are kept, as in attn_linear_args;
                                             biases and norms stay float. 0: ATTN_F32 */
    /* Norms of the queries and of the keys, as attn_norm computes them */
    attn_norm_kind qk_norm;               /* 0: ATTN_NORM_RMS; ATTN_NORM_LAYER (Phi, StableLM,
                                             Chameleon) */
    const float *q_norm, *k_norm;         /* weights, sizes: see norm_row; NULL: no norm.
                                             Gemma 3: 1 + weight */
    const float *q_norm_b, *k_norm_b;     /* biases of the same sizes; NULL: zeros */
    float norm_eps;                       /* 0: 1e-6 */
    int norm_after_rope;                  /* 0: before the rotation (Qwen3, Gemma 3); 1: after it */
    int norm_row;                         /* 0: each head by itself, all with the weights [head_dim]
                                             1: all heads of a row at once, q_norm [heads*head_dim],
                                                k_norm [kv_heads*head_dim] (OLMo 2 and 3)
                                             2: each head by itself, with its part of the weights,
                                                sizes as for 1 (StableLM 2, Chameleon) */
    int v_norm;                           /* 1: an RMS norm, without weights, of each head of the
                                             values (Gemma 3n and 4) */
    /* self-attention: queries and keys rotated by their positions */
    const float *rope_table;              /* [positions][rotary_dim] of attn_rope_table; NOT copied;
                                             NULL: no rotation */
    int positions;                        /* rows of the table, and of q_factors: no sequence may be
                                             longer, unless opts.rope_pos sets the positions */
    int rotary_dim;                       /* 0: head_dim; else only this many components rotate */
    int rope_interleaved;                 /* as in attn_rope_args */
    const float *q_factors;               /* [positions] NULL: none; NOT copied. Queries at position
                                             p, after norm and rotation, are multiplied by
                                             q_factors[p] (Llama 4's temperature). Works without
                                             rope_table */
    const void *packed;                   /* NULL, or memory that an attn_mha_init with the same
                                             sizes and storage has filled: all weights, biases and
                                             norms, as in attn_linear_args. These are NULL then; all
                                             other members must be given again, and of these only
                                             sizes, q_only and storage are compared */
    size_t packed_size;                   /* bytes at packed */
    void *mem;  size_t mem_size;          /* NULL: ATTN_MALLOC; else attn_mha_size bytes, to live as
                                             long as the layer. Not used with packed */
    void *user;                           /* for ATTN_MALLOC, ATTN_FREE and ATTN_REFUSED of init */
} attn_mha_args;
typedef struct attn_mha {
    attn_mha_args shape;                  /* read only: every default resolved, weights NULL */
    attn_linear q, k, v, o, gate;         /* may be run separately, if they have weights */
    /* private */
    const float *q_norm, *k_norm, *q_norm_b, *k_norm_b;
    void *own;                            /* memory that free releases, or NULL */
} attn_mha;

/* Options of a call. NULL or all 0: defaults. */
typedef struct attn_mha_opts {
    /* Supported members: scale, softcap, causal, align, q_pos, q_pos_each, window_left,
       window_right, q_lengths, k_starts, k_lengths, q_cum, k_cum, k_map, k_batch; mask, keep, bias,
       their shapes and strides; alibi_slopes, rel_bias, rel_extent, sinks, weights, weights_heads,
       n_weights_heads, weights_stage, lse, masked_rows, work, work_size, user, exec, backend. The
       layer sets all others, and they must be 0: tensors, sizes, layout, their strides, and
       members for states; kv must be NULL or the cache of the call. */
    attn_args attn;
    const float *memory_v;                /* cross: source of the values [batch][n_k][d_value];
                                             NULL: memory */
    const int *rope_pos;                  /* [batch][n_q] NULL: rows are at the positions of their
                                             keys. Else the position of each row of x, only for the
                                             rotation and q_factors: causal, windows and ALiBi keep
                                             counting keys. Negative: the row is not rotated. Rows
                                             after q_lengths are not read, unless attn_mha_self
                                             uses them as keys (k_lengths NULL or longer). For trees
                                             of guesses */
    int weights_mean;                     /* 1: attn.weights is [batch][n_q][n_k], the mean over all
                                             heads, or over attn.weights_heads */
} attn_mha_opts;

/* Returns the bytes of mem that an init with these sizes needs, a multiple of 64; SIZE_MAX if they
   are invalid. Of the pointers, it only matters whether w_gate and those of norms are NULL; with
   packed, its header determines which of these are counted. */
ATTNDEF size_t      attn_mha_size(const attn_mha_args *a);

/* Makes *m, ignoring its contents; if it is a layer already, free that first. After an error *m is
   zeroed.
   Errors: NULL, SIZE (also: no positions for a rope_table or q_factors; with ATTN_Q8_0 the inputs
   of a linear are no multiple of 32), HEADS, OPTION (also: an invalid gate_rows, even without
   w_gate), CONFLICT (w_in with w_q; a rotation with d_key or d_value other than d_model; q_only
   with weights of keys, k_norm or v_norm; b_gate or the bias of a norm without its weights; packed
   with a weight, bias or norm), BYTES and SIZE of packed as in attn_linear_init, OVERFLOW, WORK
   (mem_size), MEMORY, ALIGN. */
ATTNDEF attn_status attn_mha_init(attn_mha *m, const attn_mha_args *a);
ATTNDEF void        attn_mha_free(attn_mha *m);             /* NULL, zeroed, freed twice: allowed */

/* The six calls. They write only their outputs, work and the cache of a fill or self step.
   Workspace is attn.work of attn_mha_workspace bytes, otherwise one ATTN_MALLOC. An empty row (no
   visible key) is the bias b_o; rows after q_lengths are zeros. Rows of x after q_lengths, and rows
   of memory, are not read unless they are used as keys. Rows are [batch][n][d_model]; ragged
   entries (attn.q_cum, attn.k_cum) follow each other from row 0 on, and n is 0 or at least the
   number of rows of the longest entry. Thread safe if out, work and the caches written differ.
   Errors: those of attn_sdpa, and FULL. OVERLAP: an output (out, weights, lse, masked_rows, work,
   the cache of a fill or a self step) overlaps an input, including the layer's weights. CONFLICT,
   in addition to those of attn_sdpa:
       a tensor, size, layout, stride or carry of attn is set, or attn.kv is a cache other than c
       self, self_step     attn.k_map, attn.k_batch, attn.k_cum or memory_v: the keys are those of x
       self_step           attn.k_lengths, attn.k_starts or causal top-left: it attends to all keys,
                           bottom-right
       cross_step          attn.k_starts or attn.k_cum: the cache determines where entries begin
       self_look           as self_step
       cross, cross_fill   a layer with a rope_table or q_factors
       cross_step          such a layer, unless rope_pos is given
       all but self_look and cross_step     a layer with q_only */

/* Self-attention, NOT causal unless attn.causal is set; attn_mha_self_step always is. Rotary
   positions count from 0, or from k_starts[b] in a batch padded on the left.
   A batch padded on the right: set both attn.q_lengths and attn.k_lengths; with q_lengths alone the
   rows of padding are visible as keys. Ragged: only attn.q_cum. */
ATTNDEF attn_status attn_mha_self(const attn_mha *m, float *out, const float *x, int batch, int n,
                                  const attn_mha_opts *o);

/* Cross-attention: memory [batch][n_k][d_key], or with attn.k_map [k_batch][n_k][d_key]. */
ATTNDEF attn_status attn_mha_cross(const attn_mha *m, float *out, const float *x, int batch,
                                   int n_q, const float *memory, int n_k, const attn_mha_opts *o);

/* Decoding, n new rows per entry (attn.q_lengths: fewer for some, or none): projects them, rotates
   them by their positions in the cache, appends their keys and values, attends to all keys, causal
   bottom-right. Tokens one at a time, several at once, or the whole prompt first give the same
   bits. For a long prompt use 512 rows per call: 1.17 times the tokens per second of 64. batch is
   that of c. Masks and weights are as wide as the longest entry after the append. */
ATTNDEF attn_status attn_mha_self_step(const attn_mha *m, float *out, const float *x, int batch,
                                       int n, attn_kv *c, const attn_mha_opts *o);

/* A step that appends nothing: it attends to the keys that another layer has appended for the same
   rows (Gemma 3n and 4 share keys and values between layers). c is the cache of that layer, whose
   step comes first: the rows of x are the last n rows of each entry, or the last q_lengths[b]. They
   are projected, normed, rotated and masked as in a step: causal bottom-right. Same bits as a step
   of a layer with this cache. An entry with fewer keys than rows: LENGTHS. */
ATTNDEF attn_status attn_mha_self_look(const attn_mha *m, float *out, const float *x, int batch,
                                       int n, const attn_kv *c, const attn_mha_opts *o);

/* Called once per sentence: empties c and fills it with the projected memory [batch][n_k][d_key];
   source_lengths [batch], 0..n_k, NULL: all n_k. batch is that of c; an entry without a sentence
   has length 0. Each layer of a decoder has a separate cache. Uses only the options memory_v, work,
   user, exec and backend. */
ATTNDEF attn_status attn_mha_cross_fill(const attn_mha *m, attn_kv *c, const float *memory,
                                        int batch, int n_k, const int *source_lengths,
                                        const attn_mha_opts *o);

/* Called for each token or group of tokens: projects only x and reads the first `batch` entries of
   c, or those of attn.k_map, so that several queries of one sentence can share its entry. Masks and
   weights are as wide as the longest entry that is read, not the capacity. A layer with a
   rope_table or q_factors applies them to its queries by rope_pos; the keys of c were rotated when
   they were appended. */
ATTNDEF attn_status attn_mha_cross_step(const attn_mha *m, float *out, const float *x, int batch,
                                        int n_q, const attn_kv *c, const attn_mha_opts *o);

/* Returns the bytes of attn.work for a call with these sizes; SIZE_MAX if they are invalid.
   n_q  n of self, self_step and self_look; not used by CROSS_FILL
   n_k  of cross and cross_fill; for steps the capacity of the cache, or the longest length if it is
        larger after keys were forgotten; not used by SELF
   Depends on its arguments like attn_sdpa_workspace, and never shrinks as sizes grow. */
typedef enum attn_mha_call {
    ATTN_MHA_SELF, ATTN_MHA_CROSS, ATTN_MHA_SELF_STEP, ATTN_MHA_CROSS_FILL, ATTN_MHA_CROSS_STEP,
    ATTN_MHA_SELF_LOOK
} attn_mha_call;
ATTNDEF size_t      attn_mha_workspace(const attn_mha *m, attn_mha_call call, int batch, int n_q,
                                       int n_k, const attn_mha_opts *o);
#endif /* ATTN_NO_LAYERS */

#ifndef ATTN_NO_DELTA
/* ---- LINEAR ATTENTION ---------------------------------------------------------------------------
   A recurrence over a state, a matrix per head, instead of keys: the gated delta rule (Qwen3-Next,
   Kimi Linear), and with ATTN_RULE_ADD Mamba-2, GLA, RetNet and Lightning Attention. The cost of a
   row does not grow with the sequence. For each row in order, with e = exp(g), b = beta and S the
   state [head_dim][v_head_dim] of the head:
       S[c][x] = e[c] * S[c][x]
       u[x]    = sum over c of k[c] * S[c][x]
       d[x]    = b * (v[x] - u[x])                with ATTN_RULE_DELTA
       d[x]    = b * v[x]                         with ATTN_RULE_ADD
       S[c][x] = S[c][x] + k[c] * d[x]
       out[x]  = scale * sum over c of q[c] * S[c][x]
   A prompt in one call, in pieces or row by row gives the same bits, with any threads and strides,
   on every backend with fma. The state is memory of the caller, zeros before the first row: memcpy
   copies a sequence, and restoring a copy made before a draft rejects the draft. */
typedef enum attn_rule { ATTN_RULE_DELTA, ATTN_RULE_ADD } attn_rule;
typedef struct attn_delta_args {
    float *out;                           /* [batch][n][heads][v_head_dim] */
    float *state;                         /* [batch][heads][head_dim][v_head_dim] in and out */
    const float *q, *k;                   /* [batch][n][k_heads][head_dim] */
    const float *v;                       /* [batch][n][heads][v_head_dim] */
    const float *g, *beta;                /* [batch][n][heads] NULL: zeros (no decay); ones */
    int g_per_component;                  /* 1: g is [batch][n][heads][head_dim] (Kimi Linear) */
    int batch, n;                         /* 0: nothing is written (n 0 with q_cum: the longest
                                             entry) */
    int heads, k_heads;                   /* heads >= 1; k_heads 0: heads, else a divisor of heads:
                                             heads / k_heads adjacent heads share q and k */
    int head_dim, v_head_dim;             /* v_head_dim 0: head_dim */
    /* {batch, row, head} in floats, as in attn_args. Packed [q|k|v]: set only row. */
    ptrdiff_t q_stride[3], k_stride[3], v_stride[3], out_stride[3], g_stride[3], beta_stride[3];
    attn_rule rule;                       /* 0: ATTN_RULE_DELTA */
    float scale;                          /* 0: 1/sqrt(head_dim); Mamba-2: 1 */
    int qk_norm;                          /* 1: divides q and k of each head by sqrt(sum of squares
                                             + norm_eps) (Qwen3-Next) */
    float norm_eps;                       /* 0: 1e-6 */
    const int *q_lengths, *q_cum;         /* as in attn_args. Rows past a length are not read, and
                                             do not change the state */
    const attn_exec *exec;                /* NULL: this thread */
    attn_backend backend;                 /* 0: best here */
    void *work;                           /* NULL: ATTN_MALLOC(user, n); any alignment */
    size_t work_size;                     /* of work, at least attn_delta_workspace() */
    void *user;                           /* for ATTN_MALLOC, ATTN_FREE and ATTN_REFUSED */
} attn_delta_args;

/* Sums over c are one chain of fma from +0, c ascending, and S + k * d is one fma; every other
   operation rounds once. exp(g) is +0 below -87.3, and 1 / exp(-g) for g > 0. NaN and infinities
   pass as IEEE 754 defines. Thread safe: writes only out, state and work, which may not overlap an
   input or each other. Errors: NULL, SIZE, HEADS, STRIDE, LENGTHS, OPTION, CONFLICT (q_cum and
   q_lengths; g_per_component without g), OVERLAP, OVERFLOW, WORK, MEMORY, BACKEND, ALIGN. */
ATTNDEF attn_status attn_delta(const attn_delta_args *a);
/* Returns the bytes of work that attn_delta needs: 72 KB per thread for a head_dim of 128. Depends
   on head_dim and exec->width only; SIZE_MAX if the sizes or options are invalid. */
ATTNDEF size_t      attn_delta_workspace(const attn_delta_args *a);

/* The causal convolution, channel by channel, that these models apply before linear attention:
       y[t] = bias + sum over j of w[j] * x[t - (width-1) + j]        SILU: y = silu(y)
   A chain of fma from the bias, or +0, j ascending. Rows before the first are those of the state,
   which then becomes the last width - 1 rows: zeros before the first row of a sequence. Pieces give
   the bits of one call. */
typedef struct attn_conv_args {
    float *y;                             /* [batch][n][channels] */
    float *state;                         /* [batch][width-1][channels] in and out, oldest first */
    const float *x;                       /* [batch][n][channels] */
    const float *w;                       /* [channels][width], as in PyTorch's conv1d */
    const float *bias;                    /* [channels] NULL: zeros */
    int batch, n, channels, width;        /* width 1..16 */
    int silu;                             /* 1: SiLU after the sum */
    const int *q_lengths, *q_cum;         /* from here as in attn_delta_args */
    const attn_exec *exec;
    attn_backend backend;
    void *user;
} attn_conv_args;
/* Thread safe: writes only y and state, which may not overlap an input or each other; never
   allocates. Errors: NULL, SIZE, LENGTHS, OPTION, CONFLICT, OVERLAP, OVERFLOW, BACKEND, ALIGN. */
ATTNDEF attn_status attn_conv(const attn_conv_args *a);
#endif /* ATTN_NO_DELTA */

#ifdef ATTN_THREADS
/* ---- THREADS ------------------------------------------------------------------------------------
   A small thread pool: pthreads (link with -pthread if your system needs it) or Win32. Its threads
   exist from create to destroy.
   Thread safe: several threads may use one pool at once; their jobs run one after the other.
   Nested: a task that uses a pool, the same or another one, runs those tasks in its own thread. So
   pools never wait for each other, if only one copy of the implementation is linked: two
   ATTN_STATIC copies cannot detect each other's tasks, and tasks of one must not use a pool of the
   other.
   IDLE WORKERS spin for up to ATTN_POOL_SPIN microseconds, because the next call often follows
   soon, then sleep. A sleeping worker costs a call 35 to 100 us. Each pause longer than
   ATTN_POOL_SPIN halves the next spins, down to 1/64; a shorter one restores them. If a worker is
   preempted while it spins, workers do not spin for a while, because other threads need the CPU. A
   pool with more threads than CPUs never spins. If all workers sleep after a long pause, calls of
   less than about 100 us run on the caller's thread alone, with the same bits, until several such
   calls follow each other quickly.
   PLACEMENT. On Linux a worker that a call wakes is kept off the caller's CPU if its mask allows
   another one; otherwise the kernel often puts both threads on one CPU. For that the pool removes
   the caller's CPU from the worker's mask and restores the mask when the worker runs. The pool
   respects masks set by taskset, cpusets or sched_setaffinity before or after attn_pool_create,
   and never changes the mask of the caller. Elsewhere the system places the threads. For threads
   bound to CPUs write an attn_exec.
   After fork() the child has no worker threads: a pool of the parent runs its tasks on the caller's
   thread there, and destroy only frees its memory. No other thread may be inside attn_pool_create
   or attn_pool_destroy during the fork. Pools that the child creates work as usual. */
typedef struct attn_pool attn_pool;

/* Creates a pool of 1..256 threads, including the thread of the caller of a job; 0: one per
   processor, at most 256. Returns NULL if out of range, or if the system refuses. Uses
   ATTN_MALLOC(NULL, ...). */
ATTNDEF attn_pool  *attn_pool_create(int threads);
ATTNDEF attn_exec   attn_pool_exec(attn_pool *p);       /* for attn_args.exec; NULL: one thread */
ATTNDEF void        attn_pool_destroy(attn_pool *p);    /* only when unused; NULL is allowed */
#endif

/* ---- NOTES --------------------------------------------------------------------------------------
   PRECISION. Sums run in chunks of 128 keys; exp is accurate to 1.4 ulp, and 0 instead of a
   denormal number. On N(0,1) inputs the rms error against exact arithmetic is 2.52e-8 (512 keys,
   head_dim 64), 1.31e-8 (2048 keys), 2.36e-8 (1024 keys, head_dim 128). For any inputs that do not
   overflow, with u = 2^-24, n keys in C chunks, V the largest |v[j][x]| of a visible key and S the
   largest, over the visible keys j, of the sum over c of |scale * q[c] * k[j][c]|:
       E = 1.02 u V ((head_dim + 4) S + 9 C + min(n, 128) + 2 ln n + 18)
       |error of out[x]| <= E + (n + 4) (1 + V) 2^-126    if E <= V / 100, otherwise 2.01 V
   Softcap adds 8 S inside the brackets of E; ALiBi, rel_bias, bias and mask add 3 S and 4 times the
   largest sum of their magnitudes. Rounding errors have either sign, so typical errors are smaller:
   E with sqrt(head_dim + 4), sqrt(9 C) and sqrt(min(n, 128)) instead of these terms is a rule of
   thumb. N(0,1), 512 keys, head_dim 64: the bound is 1.7e-4, the rule gives 2e-5, the largest error
   measured is 1.5e-7.
   Linears sum in chains of 256 inputs: their rms error is 2.8e-7 to 3.0e-7 of the rms of y, for
   256 to 4096 inputs.

   OVERFLOW follows IEEE 754, operation by operation. A dot product that overflows stays infinite. A
   row that sees a score of +inf, or whose visible scores are all -inf, is NaN; softcap makes such
   scores finite. A probability of 0 times an infinite value is NaN. p * v is summed before it is
   divided, so values beyond FLT_MAX / n_k may overflow.

   DENORMALS, numbers below 1.2e-38, are not flushed, because that would change bits; only the
   exponentials of a softmax that would be denormal are 0. Intel processors take 100 to 200 cycles
   for an instruction that reads or makes one: 256 x 256, 8 heads of 64, with only denormals in K
   takes 95 times as long as with ordinary numbers (a plain loop that does not flush: 27 times). Set
   them to 0 before the call, for example after a long decay.

   HIDDEN KEYS COST LITTLE. Groups of 16 keys that are hidden from a few consecutive rows, by
   position or by arrays, are neither multiplied nor exponentiated; one to four rows with few
   visible keys read only these. So a block-sparse or document mask costs the time for its visible
   keys and for reading the mask. (Not with weights of the stages RAW and CAPPED, which show hidden
   keys.)

   MEMORY. With `work` (see attn_sdpa_workspace) no call allocates. Nothing is read past the last
   float of a row, so tensors may end at a page. Pointers to float, int and size_t must be aligned
   to their type, as C requires (else ATTN_E_ALIGN); `work` and `mem` may have any alignment.
   AVX-512 is faster on rows that begin at multiples of 64 bytes: one row over 256 plain keys takes
   0.75 of the time, 16 rows over 512 keys 0.91. Memory that attn.h allocates or packs is aligned
   this way.

   STACK, in KB of 1024 bytes: the deepest path on any backend (x86-64, cc -O2, the largest of gcc
   12 and clang 14, 16 and 19). A thread that runs tasks of an executor needs no more. ATTN_MALLOC,
   ATTN_REFUSED and an executor add their own use; ATTN_STACK is added for attn_self and attn_cross.
   Runs of linears and layers with weights in 8 bits need 3.4 more.
       attn_self             6.5    attn_mha_self         7.5    attn_kv_append        4.1
       attn_cross            6.5    attn_mha_cross        7.5    attn_linear_run       6.7
       attn_sdpa             4.9    attn_mha_self_step    7.5    attn_linear_init      4.1
       attn_self_step        5.5    attn_mha_cross_step   7.5    attn_fold             4.0
       attn_check            3.8    attn_mha_cross_fill   7.5    attn_mha_init         4.6
       attn_bias_t5          2.7    attn_mha_workspace    4.6    all others            2.5
       attn_sdpa_workspace   3.3    attn_mha_self_look    7.5    attn_delta            4.1
       attn_conv             6.5
   With -DATTN_STACK=2048 all functions run in threads of 16 KB. Without optimisation, and under
   sanitizers, frames are larger.

   REAL TIME. Only these allocate: attn_self and attn_cross beyond ATTN_STACK; attn_sdpa,
   attn_self_step, attn_delta and the calls of layers without `work`; the inits without `mem`;
   attn_pool_create.
   Apart from that, from printing (attn_mask_print, ATTN_DEBUG) and from creating or destroying a
   pool, no function takes a lock or makes a system call, except through an executor such as the
   pool. The first call of a process detects the instruction sets; attn_backends does this in
   advance, and writing to `mem` and `work` in advance avoids page faults.
   Time depends on sizes, lengths and masks, so a step of n rows takes longest when its cache is
   full. It does not depend on values, with three exceptions: denormal numbers; NaN or infinities in
   V if some keys are visible to only some rows (up to 1.6 times the time); and rounding to ATTN_Q8,
   which is slower if many values are halfway between two integers, and faster if a row is read as 0
   or NaN. attn_kv_append copies n rows, and at most one page for each entry that grows. Truncate,
   reset, forget and copy take time proportional to the pages of an entry; reorder, to the pages of
   all entries; keep, to n rows and their pages; read, save and load, to the bytes.

   GLOBALS. The only globals are one cached word of CPU features and, with ATTN_THREADS, a flag per
   thread that is set while it runs a task. Every function may be called from many threads at once
   with different outputs; its contract names exceptions. Only attn_pool_create starts threads.

   VERSIONS. Semantic versioning. Within 1.x, source code continues to compile with the same
   meaning, and the same inputs give the same bits in every version. Bits change only to fix a bug,
   and the revision history in section 13 then lists the calls. Names with two underscores, members
   marked private and the contents of packed memory may change at any time. Structs may grow from
   1.x to 1.y: recompile everything that includes the header (libattn.so has both numbers in its
   soname). A binding to another language should first compare attn_version, and attn_struct_size of
   each struct that it mirrors, with its own numbers.

   NAMES. All names begin with attn_ or ATTN, and no macro has the name of a function. C++ may
   include the header inside a namespace, after <stddef.h>. */
#ifdef __cplusplus
}
#endif
#endif /* ATTN_H */

/* =================================================================================================
 * 2  CONFIGURATION AND COMPILER MACROS                stop here if you only want to use the library
 * ============================================================================================== */
#if defined(ATTN_IMPLEMENTATION) && defined(__STRICT_ANSI__) && !defined(__cplusplus) && \
    (!defined(__STDC_VERSION__) || __STDC_VERSION__ < 199901L)
#error "attn.h: the implementation needs C99: compile this one file with -std=c99 or later"
#undef ATTN_IMPLEMENTATION               /* makes this the only message */
#endif
#if defined(ATTN_IMPLEMENTATION) && !defined(ATTN__IMPLEMENTED) && !defined(ATTN__ISA)
#define ATTN__IMPLEMENTED

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ + 0 > 0) || \
    defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || \
    defined(__NO_SIGNED_ZEROS__) || defined(_M_FP_FAST)
#error "attn.h: -ffast-math, or a part of it, changes results: compile the file with \
ATTN_IMPLEMENTATION alone, without that flag"
#elif defined(__FLT_EVAL_METHOD__) && \
    (__FLT_EVAL_METHOD__ < 0 || (defined(__x86_64__) && __FLT_EVAL_METHOD__ == 2))
#error "attn.h: -mfpmath=387 changes results: compile the file with ATTN_IMPLEMENTATION with \
-mfpmath=sse"
#elif defined(__clang__)
/* No macro reports clang's -fno-honor-nans, and no pragma switches it off for `? :`. This warning
   of clang 19 reports it, as an error. */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option"
#pragma clang diagnostic error "-Wnan-infinity-disabled"
typedef char attn__compile_without_fno_honor_nans[sizeof(__builtin_nanf("")) == 4 ? 1 : -1];
#pragma clang diagnostic pop
#endif
/* gcc -fsingle-precision-constant changes the value of constants, and can be detected only here. */
typedef char attn__compile_without_fsingle_precision_constant
    [sizeof(1.0) == sizeof(double) ? 1 : -1];

/* No macro reports -funsafe-math-optimizations without its parts, nor clang's -freciprocal-math and
   -fassociative-math: these pragmas switch them off until the pop at the end. */
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wignored-pragmas"
#pragma float_control(push)
#pragma float_control(precise, on)
#pragma clang diagnostic pop
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize ("no-unsafe-math-optimizations")
#endif

#include <limits.h>
#include <stdarg.h>
#include <string.h>                       /* memcpy, memset, memmove */
#ifndef ATTN_NO_STDIO
#include <stdio.h>                        /* only attn_mask_print */
#endif
#ifndef ATTN_MALLOC
#include <stdlib.h>
#define ATTN_MALLOC(user, size) ((void)(user), malloc(size))
#define ATTN_FREE(user, ptr)    ((void)(user), free(ptr))
#endif
#ifndef ATTN_ASSERT
#include <assert.h>
#define ATTN_ASSERT(x) assert(x)
#endif
#if defined(ATTN_DEBUG) && !defined(ATTN_NO_STDIO)
#define ATTN__DEBUG_PRINT(sentence) ((void)fprintf(stderr, "attn.h: %s\n", sentence))
#else
#define ATTN__DEBUG_PRINT(sentence) ((void)(sentence))
#endif
#ifndef ATTN_REFUSED
#define ATTN_REFUSED(user, status, sentence) \
    ((void)(user), (void)(status), ATTN__DEBUG_PRINT(sentence))
#endif
#ifndef ATTN_STACK
#define ATTN_STACK 24576
#endif
#ifndef ATTN_SERIAL_FLOPS
#define ATTN_SERIAL_FLOPS 400000
#endif
#ifndef ATTN_POOL_SPIN
#define ATTN_POOL_SPIN 2000
#endif
#ifndef ATTN_SELF
#define ATTN_SELF "attn.h"
#endif

/* Compiler-specific names. Everything outside ISO C is here. */
#if defined(__GNUC__) || defined(__clang__)
#define ATTN__INLINE  static inline __attribute__((always_inline, unused))
#define ATTN__NOINLINE __attribute__((noinline))
#define ATTN__UNUSED  __attribute__((unused))
#define ATTN__ATTR(isa) __attribute__((target(isa)))
#define ATTN__PRINTF(sentence, first) __attribute__((format(__printf__, sentence, first)))
#elif defined(_MSC_VER)
#define ATTN__INLINE  static __forceinline
#define ATTN__NOINLINE __declspec(noinline)
#define ATTN__UNUSED
#define ATTN__ATTR(isa)
#define ATTN__PRINTF(sentence, first)
#else
#define ATTN__INLINE  static
#define ATTN__NOINLINE
#define ATTN__UNUSED
#define ATTN__ATTR(isa)
#define ATTN__PRINTF(sentence, first)
#endif

/* tests/suites/private.c counts how often each path is taken. */
#ifndef ATTN__COUNT
#define ATTN__COUNT(name) ((void)0)
#endif

#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#define ATTN__MSAN
#endif
#endif

/* PREFETCHING. Processors prefetch memory that is read sequentially, and an additional prefetch
   occupies the slot of a load: without prefetches, one row over a cache in L2 or L3 takes 0.75 of
   the time. So memory is read sequentially and without prefetches, with these exceptions:
      attn__ahead           three rows and more: the next head of a cache; in rows of memory, keys
                            16 or 128 later
      keys_ahead            K in place: 32 keys ahead, in address order
      attn__band_prefetch   masks, which no cache holds: a band ahead
      delta                 q, k and v: the next block of rows
      attn__linear_block    one row over packed weights of 16 bits: 1 or 2 KB ahead; several
                            rows over weights of 32 MB and more: two panels ahead
      byte_tile             weights of 8 bits: 256 inputs ahead, or 128
   ATTN__FETCH prefetches and never faults. make bench ARGS=--ahead compares with no prefetches. */
#ifndef ATTN__FETCH
#if defined(__GNUC__) || defined(__clang__)
#define ATTN__FETCH(p) __builtin_prefetch(p)
#elif defined(_MSC_VER) && (defined(_M_X64) || defined(_M_IX86))
#define ATTN__FETCH(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#else
#define ATTN__FETCH(p) ((void)(p))
#endif
#endif
enum { ATTN__CHUNK = 128, ATTN__PANEL = 16 };      /* keys of a chunk; keys or columns of a panel */

/* Guard zones between the parts of work memory: their size in floats, and the function that marks
   them. There are none by default; with tests/support/fence.h the address sanitizer detects
   accesses across parts. */
#ifndef ATTN__FENCE
#define ATTN__FENCE 0
#define ATTN__GUARD(at, floats, on) ((void)0)
#endif

/* ---- types shared by the sections ------------------------------------------------------------ */
/* One entry of the batch: its rows and keys, and their addresses. */
typedef struct attn__entry {
    int b;                                /* its index in the batch */
    int rows;                             /* query rows that exist */
    int start, keys;                      /* keys start <= j < start + keys exist, or existed */
    int kv;                               /* its K/V entry */
    int gap_from, gap_to;                 /* forgotten keys, whole chunks; 0, 0: none */
    int n_pages;                          /* cache: number of pages with its keys */
    const int *pages;                     /* their numbers; NULL without a cache */
    long long pos;                        /* position of row 0 */
    const float *q, *k, *v;               /* row 0 of head 0 (k, v NULL with a cache) */
    float *out;
} attn__entry;

/* The arrays of attn_args with an element for each key of a row: X(name, type of an element, heads
   of an array without a shape). attn_args also has name_shape and name_stride. Those of floats are
   added to scores in this order, and -inf hides; a byte of 0 hides. */
#define ATTN__ADDED(X) X(bias, float, call->heads) X(mask, float, 1)
#define ATTN__MASKS(X) ATTN__ADDED(X) X(keep, unsigned char, 1)
#define ATTN__NUMBER(name, type, heads) ATTN__OF_##name,
#define ATTN__ONE_MORE(name, type, heads) + 1
enum { ATTN__MASKS(ATTN__NUMBER) ATTN__ALL_MASKS, ATTN__ALL_ADDED = ATTN__ADDED(ATTN__ONE_MORE) };
#undef ATTN__NUMBER
#undef ATTN__ONE_MORE
#define ATTN__POINTER(name, type, heads) const type *name;

/* The elements of such an array: those of row i of head h of entry b begin at
   b * step[0] + h * step[1] + i * step[2]. A step of 0 shares a dimension. */
typedef struct attn__cells { const void *at; ptrdiff_t step[3]; } attn__cells;

ATTN__INLINE int attn__min(int a, int b) { return a < b ? a : b; }
ATTN__INLINE int attn__max(int a, int b) { return a > b ? a : b; }
ATTN__INLINE int attn__clamp(int x, int lo, int hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}
ATTN__INLINE size_t attn__up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* HOW TO ADD
   An option that changes scores: follow softcap through attn_args, attn__check_options,
   attn__describe, ATTN__REQUEST, attn__scalar_score, struct attn__softmax, attn__bands_begin
   (`simple`), and in section 12 `cap`, `hide` and `weigh`. If heads have different numbers, follow
   alibi_slopes instead: ATTN__ARRAYS in place of attn__check_options, `slope` in place of `cap`,
   and also attn__row, attn__rowref, attn__row_arrays, attn__row_at and attn__block_rows.
   A mask by position that leaves each row one range of keys: attn_args, attn__check_options,
   attn__describe, ATTN__REQUEST, attn__visible and attn__format_forgotten. If it leaves two, these
   rows have the range that contains both, and a hole, which hides as an array does: also
   attn__rowref, attn__row, attn__row_set, attn__row_at, attn__scalar_sees, `arrays` in
   attn__call_take, attn__scan_rows (not `find_visible`, whose result rows share), and in section 12
   `add_arrays` and `hide_row`.
   A mask array: three members of attn_args, and in one of the lists above its name: of floats in
   ATTN__ADDED, whose order is that of the additions; of bytes in ATTN__MASKS, and then also
   attn__scalar_sees, and in section 12 `add_arrays`, `find_visible` and `hide_row`.
   A storage format of caches and weights: its enumerator directly before ATTN_Q8_0, because those
   of caches are a range, and files contain their numbers; attn__formats below (`together` is 1
   unless rows have a scale), ATTN__FORMATS and ATTN__F16_SOFT; attn__check_w_storage; section 3
   attn__narrow_one and attn__widen_bits, and if it does not have 16 bits attn__stored,
   attn__narrow_scalar and attn__widen_scalar; section 7 attn__page_put_lane, and for single bytes
   attn__write_lane; section 12 `narrow` and `widen`, and unless these call the scalar functions
   `value_at` and `load`. The driver then widens it once per chunk, so attn_mha_workspace tries it
   beside the formats that need the most room. If products read it: `reads`, `value_at`, `load`,
   `not_finite`, `gemm_stored`, `tile_at`, `operands_at` and `part` of section 12, attn__vwiden of
   each instruction set in section 11 (bytes need another operation), and attn__widens_from. A scale
   per row: attn__round_row_scalar and `round_row`. Linears and layers take every format of caches.
   What attn_mha_opts supports, and the manual, name the new member or format as well. */

/* Alignment that the compiler requires for float and int, for size_t, and for 16 bits. Less is
   undefined behaviour, even on processors that allow it. */
struct attn__align_cell { char before; union { float f; int i; } cell; };
struct attn__align_count { char before; size_t count; };
#define ATTN__CELL_ALIGN  offsetof(struct attn__align_cell, cell)
#define ATTN__COUNT_ALIGN offsetof(struct attn__align_count, count)
struct attn__align_half { char before; unsigned short half; };
#define ATTN__HALF_ALIGN  offsetof(struct attn__align_half, half)

/* The formats. Caches and kept weights have those up to ATTN__FORMATS; ATTN_Q8_0 is only given, and
   attn__given_at reads it. */
typedef struct attn__layout {
    unsigned char cell;                   /* bytes of a value */
    unsigned char scale;                  /* bytes of the scale of a row; 0: rows have none */
    unsigned char together;               /* values of a key that are adjacent in a panel:
                                             a power of two */
    unsigned char align;                  /* of given values */
} attn__layout;
static const attn__layout attn__formats[] = {
    { 4, 0, 1, ATTN__CELL_ALIGN }, { 2, 0, 1, ATTN__HALF_ALIGN }, { 2, 0, 1, ATTN__HALF_ALIGN },
    { 1, 4, 4, ATTN__CELL_ALIGN }, { 1, 0, 1, 1 }
};
enum {
    ATTN__FORMATS = ATTN_Q8,              /* the last format of caches and kept weights */
    ATTN__F16_SOFT = ATTN_Q8_0 + 1,       /* half without an instruction to convert it */
    ATTN__Q8_WIDEST = 1040,               /* max head_dim of 8-bit keys: scores stay below 2^24 */
    ATTN__WIDENED_PANELS = 2              /* panels of V in 8 bits that a product widens at once */
};

/* Return the bytes of a value, and of n values with their scale. On 32-bit targets the product may
   wrap, so callers check the size of the whole object first. */
ATTN__INLINE size_t attn__cell(attn_storage storage) { return attn__formats[storage].cell; }
ATTN__INLINE size_t attn__row_bytes(size_t n, attn_storage storage)
{
    return n * attn__cell(storage) + attn__formats[storage].scale;
}
/* Returns the number of values of a key in a panel, including padding. */
ATTN__INLINE size_t attn__padded(int n, attn_storage storage)
{
    const size_t rest = attn__formats[storage].together - 1u;
    return ((size_t)n + rest) & ~rest;
}

/* Returns the address of item i, a row or a head, of items that begin at `first` and are `bytes`
   apart. */
ATTN__INLINE const void *attn__nth(const void *first, int i, ptrdiff_t bytes)
{
    return (const char *)first + i * bytes;
}

/* Returns the address of value i. */
ATTN__INLINE const void *attn__stored_at(const void *p, ptrdiff_t i, attn_storage storage)
{
    return (const char *)p + i * (ptrdiff_t)attn__cell(storage);
}

/* Returns the index of value i of a separate row (lane -1), or of a lane of a panel: 16 interleaved
   rows, `together` values of each at a time. A panel takes as many bytes as its rows. */
ATTN__INLINE size_t attn__cell_of(size_t i, int lane, size_t together)
{
    const size_t rest = i & (together - 1);
    return lane < 0 ? i : (i - rest) * ATTN__PANEL + (size_t)lane * together + rest;
}

/* The memory of a cache: pages, followed by ints that count their holders. A page is a chunk of one
   entry: K of all K/V heads, then V of all K/V heads, so that a chunk is read sequentially. Each
   head has page_keys rows of K with head_dim values, and as many of V with v_width values
   (v_head_dim rounded up to 16). Keys are lanes of panels: appending a single key writes a cache
   line for each component, but the next attention reads these lines. V stays rows: a few queries
   read them in place, and many pack a chunk for all of them. Columns v_head_dim .. v_width - 1 are
   zeros. With v_in_k a page has no K: its rows of V hold whole keys, are as wide as the wider of
   key and value (attn__kv_v_width), and the driver reads K from them like plain rows. If rows have
   scales, those of all heads, page_keys each, follow K of all heads, and V of all heads. */

/* Returns 0 for zeroed and freed caches: functions then reject the cache and name attn_kv_init. */
ATTN__INLINE int attn__kv_live(const attn_kv *c) { return c && c->lengths && c->table; }

/* The keys that an entry has forgotten: gap[0] .. gap[1] - 1; 0, 0: none. */
ATTN__INLINE int *attn__kv_gap(const attn_kv *c, int entry)
{
    return c->gaps + 2 * (ptrdiff_t)entry;
}

/* Returns the row of the table of an entry: its pages. */
ATTN__INLINE int *attn__kv_row(const attn_kv *c, int entry)
{
    return c->table + (ptrdiff_t)entry * c->entry_pages;
}

/* Returns the page of a key that exists. */
ATTN__INLINE int attn__kv_page(const attn_kv *c, int entry, int key)
{
    const int *gap = attn__kv_gap(c, entry);
    const int at = key < gap[1] ? key : key - (gap[1] - gap[0]);
    return attn__kv_row(c, entry)[at / ATTN__CHUNK];
}

/* Returns the stored width of a row of V. */
ATTN__INLINE size_t attn__kv_v_width(const attn_kv_args *s)
{
    const size_t width = attn__up((size_t)s->v_head_dim, 16), k = (size_t)s->head_dim;
    return s->v_in_k && k > width ? k : width;
}

/* Returns the address of byte i of a page. */
ATTN__INLINE void *attn__page_at(const attn_kv *c, int page, size_t i)
{
    return (char *)c->memory + (size_t)page * c->page_size + i;
}

/* Returns K of one head. */
ATTN__INLINE void *attn__page_k(const attn_kv *c, int page, int head)
{
    return attn__page_at(c, page, (size_t)head * (size_t)c->page_keys * c->k_row);
}

/* Returns key j of a page for attn__cell_of: its row with lane -1, or its panel with its lane. */
ATTN__INLINE void *attn__page_key(const attn_kv *c, int page, int head, int j, int *lane)
{
    *lane = c->shape.v_in_k ? -1 : j % ATTN__PANEL;
    return (char *)attn__page_k(c, page, head) +
           (size_t)(*lane < 0 ? j : j - *lane) * c->k_row;
}

/* Returns the value of key j, a row. The value of key 0 is the start of V of the head. */
ATTN__INLINE void *attn__page_value(const attn_kv *c, int page, int head, int j)
{
    return attn__page_at(c, page, c->page_v + (size_t)head * (size_t)c->page_keys * c->v_row +
                                  (size_t)j * c->v_row);
}

/* Returns the scale of key j, or of its value (of_v 1); NULL if the format has none. */
ATTN__INLINE float *attn__page_scale(const attn_kv *c, int page, int head, int j, int of_v)
{
    const size_t scales = of_v ? c->v_scales : c->k_scales;
    if (!scales) return NULL;
    return (float *)attn__page_at(c, page, scales) + head * (ptrdiff_t)c->page_keys + j;
}

/* A matrix product with columns in panels of 16. All kernels that multiply matrices take this
   struct: gemm, scores, score_keys, score_bytes and select.
      c[r][x] = chain over t < depth of a[r][t] * b[t][x]
   b[t][x] is at b + (x/16)*b_panel + t*b_step + x%16. b consists of panels, with steps 16 apart, or
   of rows, with panels 16 apart. */
typedef struct attn__gemm {
    const float *a;                       /* left-hand rows, a_row floats apart */
    ptrdiff_t a_row;
    const void *b;                        /* the right-hand side */
    ptrdiff_t b_step, b_panel;            /* elements from step to step, panel to panel */
    attn_storage stored;                  /* format of b */
    const float *from;                    /* chains start at from[r][x] (NULL: at +0) */
    ptrdiff_t from_row;                   /* 0: one row for all */
    float *c;                             /* 16 * n_panels columns of each row */
    ptrdiff_t c_row;
    const float *fold_a, *fold_b;         /* NULL, or c = fma(c, fold_a[r], chain * fold_b[r]) */
    const void *prefetch;                 /* NULL, or the next b, of the same extent. Products of
                                             three rows and more, and of one row of 16 bits,
                                             prefetch it in the order of b */
    ptrdiff_t b_row;                      /* 0, or bytes from the b of a row to that of the next */
    float *room;                          /* 8 bits and several rows: for some columns of b */
    int rows, n_panels, depth;
    int last_columns;                     /* valid columns of the last panel (float only); 0: 16 */
} attn__gemm;

/* What the score kernels compute at once: n K/V heads, or in a tile n vectors of keys. q, k and c
   are the floats from one to the next in queries, keys and scores. */
typedef struct attn__heads { int n; ptrdiff_t q, k, c; } attn__heads;

/* Queries of 8 bits, and the scales of their scores. */
typedef struct attn__byte_rows {
    const signed char *at;                /* the first query (attn__parts) */
    ptrdiff_t row;                        /* bytes from query to query */
    const float *by;                      /* the scale of each query, by_row apart */
    ptrdiff_t by_row;
    const float *scale;                   /* of the keys, scale_row apart from row to row of g */
    ptrdiff_t scale_row;
} attn__byte_rows;

/* The place of a tile of scores. */
typedef struct attn__score_place {
    const float *q, *k;                   /* its first query and key */
    float *c;                             /* its first score */
    const float *next;                    /* keys to prefetch, or NULL */
    int last;                             /* last lane with a key; later lanes repeat it */
} attn__score_place;

/* A row as one chunk sees it: the keys that its position lets it see, and the arrays that hide keys
   or add to scores, from the chunk's first key on. NULL: none. */
typedef struct attn__row {
    int lo, hi;                           /* keys lo <= j < hi of the chunk, by position only */
    ATTN__MASKS(ATTN__POINTER)
    float slope, distance;                /* ALiBi; position of the row minus that of the chunk */
    const float *rel;                     /* rel_bias of its head, distance 0; NULL: none */
    int rel_extent, rel_first;            /* rel has -extent .. extent; distance of the chunk's
                                             first key, clamped without a change of the result */
} attn__row;

/* A query row that a task computes: its location, and everything it reads but K and V. Keys and
   elements count from the entry's first key. Filled when a block is opened. */
typedef struct attn__rowref {
    int b, h, i;                          /* entry, query head, row of the entry */
    int from, to;                         /* keys from <= j < to that its position lets it see */
    const float *q;
    float *out;
    long long position;                   /* counted from the entry's first key */
    ATTN__MASKS(ATTN__POINTER)            /* its elements; NULL: none */
    const float *rel;                     /* rel_bias of its head, distance 0; NULL: none */
    int rel_extent;                       /* rel has -extent .. extent */
    float slope;                          /* ALiBi */
} attn__rowref;

/* A set of keys of a chunk: key j is bit j % 64 of word j / 64. A set of its panels is an unsigned
   number: panel p is bit p. */
typedef struct attn__keys { unsigned long long word[2]; } attn__keys;

/* Sets *lo .. *hi-1 to the next run of panels in the set, from key *hi on. Returns 0 if none is
   left. */
static int attn__next_run(unsigned panels, int *lo, int *hi)
{
    int p = *hi / ATTN__PANEL;
    panels >>= p;
    if (!panels) return 0;
    for (; !(panels & 1u); panels >>= 1) p++;
    *lo = p * ATTN__PANEL;
    for (; panels & 1u; panels >>= 1) p++;
    *hi = p * ATTN__PANEL;
    return 1;
}

/* The keys of a set of panels as runs: lo <= j < hi, multiples of 16. */
typedef struct attn__runs {
    int n, lo[ATTN__CHUNK / ATTN__PANEL / 2], hi[ATTN__CHUNK / ATTN__PANEL / 2];
} attn__runs;

static void attn__runs_of(attn__runs *runs, unsigned panels)
{
    int lo = 0, hi = 0;
    for (runs->n = 0; attn__next_run(panels, &lo, &hi); runs->n++) {
        runs->lo[runs->n] = lo;
        runs->hi[runs->n] = hi;
    }
}

/* Arguments of the softmax kernel: scores of one chunk to probabilities, several rows at once. */
typedef struct attn__softmax {
    float *scores;                        /* [rows][128]: scores in, probabilities out */
    float *visible;                       /* [rows][128] out: 1 visible, 0 hidden; or NULL */
    int prefetch;                         /* the array of ATTN__ADDED that is prefetched */
    ptrdiff_t prefetch_stride;            /* 0, or floats from a row of it to its prefetch */
    const attn__rowref *row;              /* row r is row[attn__row_of(f, r)] */
    int *seen;                            /* seen[attn__row_of(f, r)] is set to 1 if row r sees a
                                             key here */
    int per_head, gap;                    /* adjacent rows of each head; rows of the block between
                                             two heads (0: none) */
    int all;                              /* 1: by position every row sees all n keys */
    int first_key;                        /* of the chunk, counted from the entry's first */
    int lo, hi;                           /* keys lo .. hi - 1 of the chunk contain all that some
                                             row sees */
    float *m, *l;                         /* [rows] out: largest visible score, sum of p */
    int rows, n;                          /* n: keys of the chunk that exist */
    attn__runs runs;                      /* the keys that have scores */
    int per_key;                          /* 1: keys are tested or changed one by one: arrays,
                                             softcap, ALiBi, a rel_bias that hides */
    int simple;                           /* 1: no softcap or ALiBi */
    int alibi;                            /* 1: slope and distance are used */
    int rel;                              /* 1: rows may have rel */
    float softcap;                        /* 0: none */
} attn__softmax;

/* Returns how many rows of the block row r is after row 0. */
ATTN__INLINE int attn__row_of(const attn__softmax *f, int r)
{
    return f->gap ? r + r / f->per_head * f->gap : r;
}

/* Returns where a chunk begins in the rel_bias table of a row at `distance` after the first key.
   The result is clamped so that the distances of a chunk fit an int; keys farther away still read
   the ends. */
ATTN__INLINE int attn__rel_first(int extent, long long distance)
{
    const long long most = (long long)extent + ATTN__CHUNK;
    return (int)(distance > most ? -most : distance < -most ? most : -distance);
}

/* Returns x as a double, rounded once. In 32-bit code that uses SSE, a conversion of 64 bits rounds
   in the mode of the x87 unit, which is the caller's. Those of 32 bits are exact. */
ATTN__INLINE double attn__double_of(long long x)
{
    return (double)(int)(x >> 32) * 4294967296.0 + (double)(unsigned)(x & 0xffffffff);
}

/* Returns 1 if rel_bias adds 0 to all `keys` keys of the row's chunk, all beyond its table. */
ATTN__INLINE int attn__rel_is_zero(const attn__row *row, int keys)
{
    const int at = row->rel_first, extent = row->rel_extent;
    return (at >= extent && row->rel[extent] == 0.0f) ||
           (at + keys - 1 <= -extent && row->rel[-extent] == 0.0f);
}

/* Sets *from .. *to - 1 to the keys that a row sees by position in the chunk that begins at key
   `first`, within lo .. hi - 1; both to 0 if there are none. */
ATTN__INLINE void attn__row_range(const attn__rowref *ref, int first, int lo, int hi, int *from,
                                  int *to)
{
    *from = attn__max(ref->from - first, lo);
    *to = attn__min(ref->to - first, hi);
    if (*from >= *to) *from = *to = 0;
}

/* Returns a row as the chunk that begins at key `first` sees it: its keys within lo .. hi - 1, and
   its arrays from the chunk's first key on. */
ATTN__INLINE attn__row attn__row_at(const attn__rowref *ref, int first, int lo, int hi, int keys)
{
    attn__row row;
    attn__row_range(ref, first, lo, hi, &row.lo, &row.hi);
#define ATTN__FROM_CHUNK(name, type, heads) row.name = ref->name ? ref->name + first : NULL;
    ATTN__MASKS(ATTN__FROM_CHUNK)
#undef ATTN__FROM_CHUNK
    row.slope = ref->slope;
    row.distance = (float)attn__double_of(ref->position - first);     /* exact, then rounded */
    row.rel = ref->rel;
    row.rel_extent = ref->rel_extent;
    row.rel_first = attn__rel_first(ref->rel_extent, ref->position - first);
    if (row.rel && attn__rel_is_zero(&row, keys)) row.rel = NULL;
    return row;
}

#ifndef ATTN_NO_LAYERS
/* One row of a norm. */
typedef struct attn__norm_row {
    float *y;
    const float *x;
    int n;
    attn_norm_kind kind;
    float eps;
    const float *weight, *bias;           /* NULL: ones; zeros */
} attn__norm_row;

/* A product with weights of 8 bits: at most one chain of each output. */
enum {
    ATTN__BLOCK = 32,                     /* inputs that have one scale */
    ATTN__BLOCK_BYTES = 2 + ATTN__BLOCK,  /* of ATTN_Q8_0: the scale, a half, and integers */
    ATTN__BLOCKS = 8                      /* blocks of a chain */
};
typedef struct attn__byte_block {         /* of a row of x */
    signed char n[ATTN__BLOCK];
    float scale;
    int sum;                              /* of n */
} attn__byte_block;
typedef struct attn__byte_panel {         /* the same block of 16 outputs */
    float scale[ATTN__PANEL];
    signed char n[(int)ATTN__BLOCK * (int)ATTN__PANEL]; /* four inputs of an output are adjacent */
} attn__byte_panel;
typedef struct attn__byte_linear {
    const attn__byte_block *x;
    int x_row;                            /* blocks from row to row */
    const attn__byte_panel *w;
    ptrdiff_t w_panel;                    /* blocks from panel to panel */
    const float *bias;                    /* the chain begins there; NULL: at +0, then added to y */
    float *y;
    ptrdiff_t y_row;
    int rows, columns, blocks;            /* columns: outputs, the last panel may end early */
} attn__byte_linear;
#endif

#ifndef ATTN_NO_DELTA
/* ROWS rows are prepared; then each slice, COLUMNS columns of the state of a head, is copied to L1
   and goes through them. */
enum {
    ATTN__DELTA_ROWS = 32, ATTN__DELTA_COLUMNS = 32,
    ATTN__DELTA_FLOATS = 3 * ATTN__DELTA_ROWS + ATTN__DELTA_COLUMNS + 4, /* of a slot, * head_dim:
                                             q, k, e, slice, weight, and 3 for the alignment */
    ATTN__DELTA_MORE = 8,                 /* components more, for v and beta */
    ATTN__CONV_WIDTH = 16, ATTN__CONV_BLOCK = 64       /* largest width; channels of a task */
};
/* Rows of one head for one slice. q and k are [rows][head_dim], v is [rows][COLUMNS] and becomes
   out; the decay of row t, component c is e[t * e_row + c * e_step]. */
typedef struct attn__delta {
    float *state, *slice, *v;             /* state: all COLUMNS; slice: [head_dim][COLUMNS] */
    const float *q, *k, *e, *beta;
    ptrdiff_t state_row;
    int rows, head_dim, columns, e_row, e_step, add;     /* add: ATTN_RULE_ADD */
    float scale;
    const float *ahead[3];                /* NULL, or rows of the next block to prefetch */
    ptrdiff_t ahead_row[3];
} attn__delta;
#endif

/* The kernels of one instruction set: X(backends, result, name, parameters) for each. ALL: the
   scalar backend has it as well (section 3); VECTOR: only section 12 has it. Rows are `row` floats
   apart. */
#define ATTN__KERNELS(X) \
    /* packs n keys of K into panels, [key/16][depth][16]; the last key pads the last panel */ \
    X(ALL, void, pack_k, (float *panels, const float *k, ptrdiff_t row, int n, int depth)) \
    /* the matrix product described above */ \
    X(ALL, void, gemm, (const attn__gemm *g)) \
    /* returns 1 if products take values in this format, 0 if they must be widened first */ \
    X(ALL, int, reads, (attn_storage storage)) \
    /* to = q * by, row by row, n floats each */ \
    X(VECTOR, void, scale, (float *to, const attn__rowref *row, int rows, int n, float by)) \
    /* packs n rows of V into panels of 16 columns, [column/16][128][16]; returns 1 if a value is \
       not finite. A row r with needed[r] 0 is not read, and stored as zeros (needed NULL: all are \
       needed) */ \
    X(VECTOR, int, pack_v, (float *panels, const float *v, ptrdiff_t row, int n, int v_head_dim, \
                            const unsigned char *needed)) \
    /* scores of g->rows rows of each head against n keys, plain rows b_step apart; `more` keys \
       follow them */ \
    X(VECTOR, void, scores, (const attn__gemm *g, attn__heads heads, int n, int more)) \
    /* the same against only the n keys key[0] < key[1] < ... */ \
    X(VECTOR, void, score_keys, (const attn__gemm *g, attn__heads heads, \
                                 const unsigned char *key, int n)) \
    /* scores of g->rows queries of 8 bits against panels of 8 bits; g->a is not read */ \
    X(VECTOR, void, score_bytes, (const attn__gemm *g, attn__byte_rows q)) \
    /* returns 1 if a value of the right-hand side is not finite */ \
    X(VECTOR, int, not_finite, (const attn__gemm *g)) \
    /* the product, but row r leaves out the steps t with visible[r*128 + t] == 0; only the n \
       steps step[0] < step[1] < ... (NULL: all) */ \
    X(VECTOR, void, select, (const attn__gemm *g, const float *visible, \
                             const unsigned char *step, int n)) \
    /* sets which of the first n keys mask, bias, keep and rel_bias of a row leave visible (later \
       ones count as visible); reads n elements */ \
    X(VECTOR, void, find_visible, (const attn__row *row, int n, attn__keys *seen)) \
    /* adds biases to scores, hides them, and makes them probabilities */ \
    X(VECTOR, void, softmax, (const attn__softmax *f)) \
    /* folds chunk states (m, l) of n rows into (M, L); a, b: factors of the outputs. Whole \
       vectors are read, and written to a and b; of M and L only n */ \
    X(ALL, void, fold, (float *M, float *L, const float *m, const float *l, float *a, float *b, \
                        int n)) \
    /* o = fma(o, a, x * b); x NULL: zeros */ \
    X(ALL, void, fold_out, (float *o, const float *x, float a, float b, int n)) \
    /* out = o / L, row by row */ \
    X(VECTOR, void, finish, (const attn__rowref *row, const float *o, ptrdiff_t o_row, \
                             const float *L, int rows, int n)) \
    /* weights of row r of the chunk, from its scores: probabilities are exp(s - M) / L. Writes \
       the elements of the first f->n keys that have scores */ \
    X(VECTOR, void, weigh, (const attn__softmax *f, int r, attn_stage stage, float *weights, \
                            float M, float L)) \
    /* convert n floats to 16 bits, rounded to nearest even, and back; not for ATTN_F32. Widen \
       8 bits to integers */ \
    X(ALL, void, narrow, (void *to, const float *from, size_t n, attn_storage storage)) \
    X(ALL, void, widen, (float *to, const void *from, size_t n, attn_storage storage)) \
    /* rounds n floats to 8 bits; returns their scale. *sum is the sum of the integers, 0 if n is \
       more than ATTN__Q8_WIDEST: longer rows are no queries, and their sum may not fit */ \
    X(ALL, float, round_row, (signed char *to, const float *x, size_t n, int *sum)) \
    /* widens `panels` panels of 16 columns of n rows of 8 bits, to [column/16][128][16] */ \
    X(VECTOR, void, pack_bytes, (float *to, const signed char *v, ptrdiff_t row, int n, \
                                 int panels)) \
    /* x = x * (scale * by) for n values, a multiple of 16; with one rounding each */ \
    X(VECTOR, void, times, (float *x, const float *scale, float by, int n)) \
    ATTN__LAYER_KERNELS(X) \
    ATTN__DELTA_KERNELS(X)
#ifndef ATTN_NO_DELTA
#define ATTN__DELTA_KERNELS(X) \
    X(ALL, void, delta, (const attn__delta *f)) \
    /* e = exp(g), n values; e may be g */ \
    X(ALL, void, decay, (float *e, const float *g, int n)) \
    /* y = a chain over the rows x[0] .. x[width-1] from row `width` of w, [width+1][w_row]; whole \
       vectors of w are read */ \
    X(ALL, void, conv, (float *y, const float *const *x, const float *w, int w_row, int width, \
                        int n))
#else
#define ATTN__DELTA_KERNELS(X)
#endif
#ifndef ATTN_NO_LAYERS
#define ATTN__LAYER_KERNELS(X) \
    /* the product of a linear in 8 bits */ \
    X(ALL, void, linear_bytes, (const attn__byte_linear *g)) \
    X(ALL, void, norm, (const attn__norm_row *row)) \
    /* y = f(x), or f(x) * gate (NULL: none); y may be x or gate */ \
    X(ALL, void, activate, (float *y, const float *x, const float *gate, size_t n, \
                            attn_activation kind))
#else
#define ATTN__LAYER_KERNELS(X)
#endif

typedef struct attn__kernels {
    attn_backend backend;
    int rows;                             /* of the register tile */
#define ATTN__MEMBER(backends, result, name, parameters) result (*name) parameters;
    ATTN__KERNELS(ATTN__MEMBER)
#undef ATTN__MEMBER
} attn__kernels;

/* A route: how a chunk is computed for the rows of a K/V head. A set of these flags. */
enum {
    ATTN__THIN = 1,                       /* a band has whole K/V heads; otherwise register tiles */
    ATTN__IN_PLACE = 2,                   /* K in rows is read in place; V too, in slices if that is
                                             the order of addresses (attn__view_open). K in panels
                                             needs no flag: it is in place unless ATTN__WIDEN_K is
                                             set */
    ATTN__WIDEN_K = 4, ATTN__WIDEN_V = 64,        /* K or V that is not floats is first widened */
    ATTN__PACK_K = 8, ATTN__PACK_V = 16,  /* K in rows is packed first; V is packed first */
    ATTN__AHEAD = 32                      /* products over panels or V prefetch the next operand */
};
enum { ATTN__ROUTES = 5 };                /* by number of rows: 1 or 2; 3 or 4; 5 to 16; 17 to 40;
                                             more */
enum { ATTN__SHARED_ROWS = 192 };         /* max rows per K/V head of entries that share keys */

/* Where the states of a block's chunks go (attn__call_run has a table). */
enum { ATTN__TO_ROWS, ATTN__TO_WORKSPACE, ATTN__TO_PARTS };

/* How entries are divided into blocks. */
typedef struct attn__cut {
    int kv_heads;                         /* K/V heads of a block */
    int head_blocks;                      /* blocks that cover all K/V heads */
    int per_head;                         /* rows of each K/V head in a block */
} attn__cut;

/* The parts of a slot: X(type, name). Those that no route needs have no room. */
#define ATTN__SLOT_PARTS(X) \
    X(attn__rowref, row)                  /* [rows] */ \
    X(int, seen)                          /* [rows] 1: the row has seen a key */ \
    X(float, q)                           /* [rows] queries times scale */ \
    X(float, o)                           /* [rows] outputs */ \
    X(float, q_scale)                     /* [rows] if K has scales, q holds integers and this \
                                             their scale */ \
    X(signed char, q_bytes)               /* [rows][call->q_row] for K in panels: the sum of these \
                                             integers, an int, then the integers as bytes */ \
    X(float, M) X(float, L)               /* [rows] the fold so far; read in whole vectors */ \
    X(float, scores) X(float, visible)    /* [rows of a band][128] */ \
    X(float, chains)                      /* [rows of a band] outputs between two runs */ \
    X(float, v_rows)                      /* of a cache that is widened: V of a chunk (with v_in_k \
                                             also K); 8 bits: some columns of V */ \
    X(float, k) X(float, v)               /* K of a chunk, packed or widened; V packed */

/* Where the parts of a slot begin, in floats from its start. */
#define ATTN__OFFSET(type, name) size_t name;
typedef struct attn__offsets { ATTN__SLOT_PARTS(ATTN__OFFSET) } attn__offsets;
#undef ATTN__OFFSET

/* Members of attn_args that a call keeps as they are: X(type, name). */
#define ATTN__REQUEST(X) \
    X(const int *, q_lengths) X(const int *, q_cum) X(const int *, k_lengths) \
    X(const int *, k_starts) X(const int *, k_cum) X(const int *, k_map) \
    X(const int *, q_pos_each) X(int, q_pos) X(const attn_kv *, kv) X(attn_causal, causal) \
    X(int, window_left) X(int, window_right) X(float, softcap) X(const float *, alibi_slopes) \
    X(const float *, rel_bias) X(int, rel_extent) X(const float *, sinks) X(float *, weights) \
    X(const int *, weights_heads) X(attn_stage, weights_stage) X(float *, lse) \
    X(const float *, carry_in) X(float *, carry_out) X(int, parts) X(size_t *, masked_rows) \
    X(void *, work) X(size_t, work_size) X(void *, user) X(const attn_exec *, exec)
#define ATTN__MEMBER(type, name) type name;

/* A call with everything decided. attn__call_take copies the request of the caller and looks at its
   options, attn__check resolves sizes and strides, attn__call_plan decides the routes and the sizes
   of memory, and attn__call_place how entries are cut into blocks, and where everything is. From
   then on it is only read, and nothing below attn__call_make reads attn_args. (Layers plan before
   it is decided where their data is, and call attn__call_take again before attn__call_place.) */
typedef struct attn__call {
    /* attn__call_take */
    ATTN__REQUEST(ATTN__MEMBER)
    const float *q_at, *k_at, *v_at;      /* the tensors */
    float *out_at;
    int ends;                             /* 1: the last row is aligned with the last key */
    int arrays;                           /* 1: has one of ATTN__MASKS */
    int planes;                           /* number of heads with weights */
    int raw;                              /* 1: weights also show the scores of hidden keys */
    int padding, out_padding;             /* 1: rows of padding are written; also to out */
    const attn__kernels *kernels;         /* of the backend; NULL: not usable */
    /* attn__check: with every default resolved */
    int batch, heads, kv_heads;
    int group;                            /* heads per K/V head: heads / kv_heads */
    int n_q, n_k;                         /* of the longest entry; size of mask, weights, lse */
    int head_dim, v_head_dim;
    int k_batch;                          /* K/V entries */
    ptrdiff_t q[3], k[3], v[3], out[3];   /* strides {batch, row, head} in floats */
    attn__cells cells[ATTN__ALL_MASKS];   /* steps {batch, head, row} in elements; at NULL: none */
    float scale;
    size_t carry_bytes;                   /* of the states of all rows; 0: no states */
    size_t rel_bytes;                     /* of rel_bias */
    /* attn__call_plan */
    int k_in_panels;                      /* 1: K is in panels, as in nearly all caches; 0: in rows,
                                             plain ones or those of a cache with v_in_k */
    attn_storage k_stored, v_stored;      /* of the cache; ATTN_F32 without one */
    int k_width;                          /* values of a key; of K in panels, including padding */
    int q_row;                            /* bytes of a query in q_bytes; 0: K is not in panels of
                                             8 bits */
    unsigned char route[ATTN__ROUTES];    /* by the number of rows of a K/V head */
    attn__offsets at;                     /* the parts of a slot */
    int tasks;                            /* at once, each with a slot */
    int is_short;                         /* 1: do not wake a thread for it; two items per thread
                                             are enough */
    int chunks;                           /* upper bound for the chunks of an entry */
    int chunk_keys;                       /* room for keys in a packed chunk */
    int block_rows;                       /* max rows of a block */
    int shared_rows;                      /* max rows per K/V head of a block whose readers share
                                             keys (cache, k_map); 0: none share */
    int v_width;                          /* v_head_dim, rounded up to whole panels */
    size_t k_head, v_head;                /* floats from head to head of a packed chunk */
    size_t table_floats, slot_floats;     /* of the tables of entries; of one slot */
    size_t bytes;                         /* of the whole workspace: tables, slots, states;
                                             SIZE_MAX: too large for memory */
    /* attn__call_place */
    attn__entry *entry;                   /* [batch] */
    int *order;                           /* [batch] the entry at each place: entries that read the
                                             same keys are neighbours */
    int *readers;                         /* [batch] number of readers that share blocks from this
                                             place on; 0: included in an earlier place */
    int *first_block;                     /* [batch + 1] index of the first block of place p */
    int by_head;                          /* 1: the masks of heads differ (ATTN__MASKS, rel_bias) */
    int thick_heads;                      /* K/V heads of a thick block */
    attn__cut thin, thick;                /* for thin and thick entries */
    int splits;                           /* splits of each block */
    int states_to;                        /* where the states of chunks go: ATTN__TO_ROWS .. */
    float *slots;
    float *states;                        /* unless they go to rows: a set for each chunk */
    int sets;                             /* number of these sets */
} attn__call;
#undef ATTN__MEMBER

/* A sentence under construction: always terminated; size 0 is allowed. */
typedef struct attn__text {
    char *at;
    size_t size, len;
    void (*print)(const char *s, size_t n);       /* NULL, or called with each piece */
} attn__text;

/* The context of a rejection. Every public function that can reject its arguments creates one and
   passes it down; attn__fail passes the sentence to ATTN_REFUSED, or keeps it for attn_check. */
typedef struct attn__why {
    const char *function;                 /* rejecting function: begins the sentence */
    void *user;                           /* of the call, for ATTN_REFUSED */
    int asked;                            /* by attn_check: ATTN_REFUSED is not called */
    const char *n, *lengths;           /* NULL, or the function's names of n_q, n_k and *_lengths */
    attn__text text;                      /* in `room`, or the caller's; at NULL: empty */
    char room[256];
} attn__why;

/* Returns the status of a check that rejects; otherwise continues. */
#define ATTN__TRY(check) \
    do { const attn_status said = (check); if (said != ATTN_OK) return said; } while (0)

/* =================================================================================================
 * 3  THE SPECIFICATION: scalar attention, one row at a time. Backend ATTN_SCALAR.
 *    The kernels of section 12 do these operations in this order, several at a time. Without fma
 *    (SSE2, wasm) a multiply-add rounds twice, so these backends have other bits.
 * ============================================================================================== */
ATTN__INLINE unsigned attn__bits(float x) { unsigned u; memcpy(&u, &x, sizeof u); return u; }
ATTN__INLINE float attn__float(unsigned u) { float x; memcpy(&x, &u, sizeof x); return x; }
ATTN__INLINE float attn__inf(void) { return attn__float(0x7f800000u); }
/* The only NaN that is ever stored. */
ATTN__INLINE float attn__nan(void) { return attn__float(0x7fc00000u); }

/* Returns a * b + c with one rounding, computed in double: the product is exact, the exact error of
 * the sum is used to round the sum to odd, and so the conversion to float is the only rounding that
 * counts. */
static ATTN__UNUSED float attn__fma_exact(float a, float b, float c)
{
    const double p = (double)a * (double)b, d = (double)c, s = p + d, t = s - p,
        error = (p - (s - t)) + (d - t);
    unsigned long long u;
    double odd;
    if (!(error > 0.0 || error < 0.0)) return (float)s;     /* exact, infinite or NaN */
    memcpy(&u, &s, sizeof u);
    if (!(u & 1u)) u = (error > 0.0) == (s > 0.0) ? u + 1 : u - 1;
    memcpy(&odd, &u, sizeof odd);
    return (float)odd;
}

/* On these targets compilers emit one instruction. Elsewhere they would call fmaf, which needs -lm,
   is slow, and does not round once in every libm. */
#if (defined(__GNUC__) || defined(__clang__)) && !defined(__TINYC__) && \
    (defined(__FMA__) || defined(__aarch64__) || defined(__ARM_FEATURE_FMA) || \
    defined(__s390x__) || (defined(__riscv_flen) && __riscv_flen + 0 >= 32) || \
    (defined(__powerpc64__) && !defined(__NO_FPRS__)))
ATTN__INLINE float attn__fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
ATTN__INLINE float attn__fma(float a, float b, float c) { return attn__fma_exact(a, b, c); }
#endif

/* Returns exp(x) for x <= 0: x = n ln 2 + r, exp(r) = 1 + r q(r) with |r| <= ln(2)/2, and 2^n from
 * the low bits of the sum with MAGIC. exp(0) is 1 exactly; below ln(FLT_MIN) the result is +0;
 * elsewhere the error is at most 1.4 ulp. The form of q (pairs, r without its last correction)
 * keeps the chain of dependent operations short: their latency limits the kernels. */
#define ATTN__LOG2E   1.44269504f
#define ATTN__MAGIC   12583039.0f         /* 1.5 * 2^23 + 127: shifts n + 127 into the low bits */
#define ATTN__LN2_HI  0.693147182f
#define ATTN__LN2_LO  (-1.90465421e-9f)
#define ATTN__EXP_MIN (-87.33654022216796875f) /* the smallest float above ln(FLT_MIN) */
#define ATTN__E1 1.0f
#define ATTN__E2 0.499999917f
#define ATTN__E3 0.166664481f
#define ATTN__E4 0.0416685355f
#define ATTN__E5 0.00837318479f
#define ATTN__E6 0.0013815868f
static float attn__exp(float x)
{
    static const float least = ATTN__EXP_MIN;
    float t, n, r, r2, y, two_n;
    if (x < least) return 0.0f;
    /* Adding MAGIC rounds to an integer; subtracting it again gives n. */
    t = attn__fma(x, ATTN__LOG2E, ATTN__MAGIC);
    n = t - ATTN__MAGIC;
    two_n = attn__float(attn__bits(t) << 23);
    r = attn__fma(n, -ATTN__LN2_HI, x);
    r2 = r * r;
    y = attn__fma(attn__fma(ATTN__E6, r, ATTN__E5), r2, attn__fma(ATTN__E4, r, ATTN__E3));
    y = attn__fma(y, r2, attn__fma(ATTN__E2, r, ATTN__E1));
    return attn__fma(y, attn__fma(n, -ATTN__LN2_LO, r) * two_n, two_n);
}

/* Returns log(x) for x >= 0; log(1) is 0 exactly. x = m 2^e with m around 1, so nothing cancels
 * when log(x) is near 0. With f = m - 1, log(1 + f) is f - f^2/2 plus a polynomial. */
static float attn__log(float x)
{
    static const float c[8] = { 0.333333317f, -0.25000821f, 0.20001227f, -0.166233573f,
                                0.142017562f, -0.13160181f, 0.127615873f, -0.0763451227f };
    unsigned u;
    float f, z, y, fz, e = 0.0f;  /* one operation per assignment: ends excess precision */
    int i;
    if (!(x > 0.0f)) return x == 0.0f ? -attn__inf() : attn__nan();
    if (x == attn__inf()) return x;
    /* A denormal has no implicit leading 1, so it is scaled by 2^23. */
    if (x < 1.17549435e-38f) { x *= 8388608.0f; e = -23.0f; }
    u = attn__bits(x) - 0x3f3504f3u;  /* x = m 2^e, sqrt(1/2) <= m < sqrt(2) */
    e += (float)((int)(u >> 23) - (u >> 31 ? 512 : 0));
    f = attn__float((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    z = f * f;
    y = c[7];
    for (i = 6; i >= 0; i--) y = attn__fma(y, f, c[i]);
    fz = f * z;
    fz = fz * y;
    y = attn__fma(e, -2.12194440e-4f, fz);                  /* ln 2 = 0.693359375 - 2.12e-4 */
    y = attn__fma(-0.5f, z, y);
    y = f + y;
    return attn__fma(e, 0.693359375f, y);
}

/* Returns tanh(x) = (1 - e) / (1 + e) with e = exp(-2|x|). Near 0 the subtraction would cancel, so
 * an odd polynomial is used there. */
#define ATTN__TANH_NEAR 0.625f
#define ATTN__T1 (-0.333332844f)
#define ATTN__T2 0.133315042f
#define ATTN__T3 (-0.0537446512f)
#define ATTN__T4 0.0206545639f
#define ATTN__T5 (-0.00572170921f)
static float attn__tanh(float x)
{
    const float ax = x < 0.0f ? 0.0f - x : x, x2 = x * x;
    float y, e, up, down;
    if (ax < ATTN__TANH_NEAR) {
        y = attn__fma(attn__fma(ATTN__T5, x2, ATTN__T4), x2, ATTN__T3);
        y = attn__fma(attn__fma(y, x2, ATTN__T2), x2, ATTN__T1);
        return attn__fma(y * x2, x, x);
    }
    e = attn__exp(ax * -2.0f);
    up = 1.0f - e;
    down = 1.0f + e;
    y = up / down;
    return x < 0.0f ? 0.0f - y : y;
}

#ifndef ATTN_NO_LAYERS
/* Returns p and sets *two_n so that exp(x + low) is *two_n * (1 + p), for x from ATTN__EXP_MIN to 0
   and |low| below 2^-17. The operations are those of attn__exp, but `low` corrects r before the
   polynomial. */
static float attn__exp_parts(float x, float low, float *two_n)
{
    const float t = attn__fma(x, ATTN__LOG2E, ATTN__MAGIC), n = t - ATTN__MAGIC;
    float r = attn__fma(n, -ATTN__LN2_HI, x), r2, y;
    *two_n = attn__float(attn__bits(t) << 23);
    r += attn__fma(n, -ATTN__LN2_LO, low);
    r2 = r * r;
    y = attn__fma(attn__fma(ATTN__E6, r, ATTN__E5), r2, attn__fma(ATTN__E4, r, ATTN__E3));
    y = attn__fma(y, r2, attn__fma(ATTN__E2, r, ATTN__E1));
    y = y * r;
    return y;
}

/* GELU by erf is x Phi(x), with t = |x|:
     t < 1   x * (1/2 + x P(x^2)), P of degree 5
     t >= 1  max(x, 0) - t Phi(-t), and t Phi(-t) = exp(-t^2/2) G(w), w = (t - 1) / (t + 5/2), G of
             degree 9: t erfcx(t/sqrt(2)) / 2. t^2 is a sum of two floats
   Coefficients minimise the largest relative error; the first one is that of t^0, w^0. No product
   feeds a sum outside an fma, except one by a power of two, which is exact: so compilers that
   contract change nothing. */
#define ATTN__GELU_P(X) \
    X(-7.83626638e-06f)      /* -0x1.06f104p-17 */ \
    X(0.000114103583f)       /* 0x1.de95cap-14 */ \
    X(-0.00118712115f)       /* -0x1.37325ap-10 */ \
    X(0.00997379422f)        /* 0x1.46d24p-7 */ \
    X(-0.0664904863f)        /* -0x1.105854p-4 */ \
    X(0.398942292f)          /* 0x1.988454p-2 */
#define ATTN__GELU_G(X) \
    X(-0.00855395384f)       /* -0x1.184bc4p-7 */ \
    X(0.0258346107f)         /* 0x1.a74636p-6 */ \
    X(-0.01392176f)          /* -0x1.c8303p-7 */ \
    X(-0.0125051513f)        /* -0x1.99c4dp-7 */ \
    X(-0.0351332985f)        /* -0x1.1fcfdep-5 */ \
    X(0.0558145754f)         /* 0x1.c93ba6p-5 */ \
    X(0.178220674f)          /* 0x1.6cfef6p-3 */ \
    X(-0.487144738f)         /* -0x1.f2d612p-2 */ \
    X(0.43475005f)           /* 0x1.bd2f1ep-2 */ \
    X(0.261578292f)          /* 0x1.0bdb2ep-2 */
static float attn__gelu(float x)
{
    static const float least = ATTN__EXP_MIN;
    const float t = x < 0.0f ? 0.0f - x : x, z = x * x, half = z * -0.5f;
    float y = 0.0f, s = 0.0f, p, two_n, up, down;           /* one operation per assignment */
    if (t < 1.0f) {
#define ATTN__TERM(c) y = attn__fma(y, z, c);
        ATTN__GELU_P(ATTN__TERM)
#undef ATTN__TERM
        return attn__fma(x, attn__fma(y, x, 0.5f), 0.0f);
    }
    if (!(half < least)) {
        up = t - 1.0f;
        down = t + 2.5f;
        up = up / down;
#define ATTN__TERM(c) y = attn__fma(y, up, c);
        ATTN__GELU_G(ATTN__TERM)
#undef ATTN__TERM
        p = attn__exp_parts(half, attn__fma(x, x, 0.0f - z) * -0.5f, &two_n);
        s = attn__fma(y, p, y) * two_n;
    }
    up = x > 0.0f ? x : 0.0f;
    up = up - s;
    return up;
}

/* x / (1 + exp(-|a|)) for x >= 0, else x exp(-|a|) / (1 + exp(-|a|)); v + low is -|a|. */
static float attn__sigmoid_times(float x, float v, float low)
{
    static const float least = ATTN__EXP_MIN;
    float p, two_n, e, up;
    if (v < least) return x < 0.0f ? 0.0f : x;
    p = attn__exp_parts(v, low, &two_n);
    e = attn__fma(p, two_n, two_n);
    up = x < 0.0f ? attn__fma(x, p, x) * two_n : x;
    e = 1.0f + e;
    up = up / e;
    return up;
}

/* GELU by tanh is x / (1 + exp(-v)) with v = x (A + B x^2), A = 2 sqrt(2/pi) and B = 0.044715 A. A,
   B and v are sums of two floats, because a relative error of v is multiplied by v in the result.
   From |x| = 16 on exp(-|v|) is 0. */
#define ATTN__GELU_A     1.59576917f          /* 0x1.988454p+0 */
#define ATTN__GELU_A_LOW (-4.53406805e-08f)   /* -0x1.857936p-25 */
#define ATTN__GELU_B     0.0713548139f        /* 0x1.2444f2p-4 */
#define ATTN__GELU_B_LOW 2.39883247e-09f      /* 0x1.49b16ap-29 */
static float attn__gelu_tanh(float x)
{
    /* variables: constants can also have excess precision */
    static const float high_a = ATTN__GELU_A, low_a = ATTN__GELU_A_LOW;
    float t = x < 0.0f ? 0.0f - x : x, z, z_low, b, b_low, u, over, low, v;
    if (t > 16.0f) t = 16.0f;
    z = t * t;
    z_low = attn__fma(t, t, 0.0f - z);
    b = attn__fma(ATTN__GELU_B, z, 0.0f);
    b_low = attn__fma(ATTN__GELU_B, z, 0.0f - b);
    u = high_a + b;                       /* and the rest of this sum, exactly */
    over = u - high_a;
    low = u - over;                       /* one operation per assignment: no excess precision */
    low = high_a - low;
    over = b - over;
    low = low + over;
    b_low += low_a;
    b_low = attn__fma(ATTN__GELU_B_LOW, z, b_low);
    low += attn__fma(ATTN__GELU_B, z_low, b_low);
    v = t * u;
    low = attn__fma(t, low, attn__fma(t, u, 0.0f - v));
    return attn__sigmoid_times(x, 0.0f - v, 0.0f - low);
}

static float attn__silu(float x)
{
    return attn__sigmoid_times(x, x < 0.0f ? x : 0.0f - x, 0.0f);
}

/* Returns the square root of x in double, rounded to nearest; x itself if x is 0, infinite or NaN.
   x is neither negative nor denormal. Integer arithmetic, one bit of the root at a time: sqrt would
   need -lm. */
static double attn__sqrt(double x)
{
    unsigned long long u, rest, twice = 0, root = 0, bit;
    int exponent;
    if (!(x > 0.0 && x - x == 0.0)) return x;
    memcpy(&u, &x, sizeof u);
    exponent = (int)(u >> 52) - 1023;
    rest = (u & 0xfffffffffffffu) | 1ull << 52;      /* x is rest * 2^(exponent - 52) */
    if (exponent & 1) {
        rest *= 2;
        exponent--;
    }
    /* root: the bits found so far, of 54; rest: the remaining square, shifted left with each bit */
    for (bit = 1ull << 53, rest *= 2; bit; bit /= 2, rest *= 2)
        if (twice + bit <= rest) {
            rest -= twice + bit;
            twice += 2 * bit;
            root += bit;
        }
    /* A tie is impossible: the square of an odd root has more bits than x. */
    u = ((unsigned long long)(exponent / 2 + 1022) << 52) + (root + 1) / 2;
    memcpy(&x, &u, sizeof x);
    return x;
}
#endif

/* Returns 1 / sqrt(head_dim), rounded to the nearest float. Integer arithmetic: this runs before
   any task, so it must neither depend on the caller's rounding mode nor change its exception
   flags. */
static float attn__default_scale(int head_dim)
{
    const unsigned long long n = (unsigned long long)head_dim;
    unsigned long long power, square, root;
    unsigned h = 0, i;
    for (power = 4; power <= n; power *= 4) h++;  /* 2^-h-1 < 1/sqrt(n) <= 2^-h */
    /* square = 2^(2h+52) / n, at most 2^52. Its root is 2^(h+26) / sqrt(n): two bits more than a
       float. */
    power <<= 30;
    square = (power / n << 20) + (power % n << 20) / n;
    /* From a start within 5 % of the root, three steps of Heron's method give the root, or one
       more. */
    root = (square / 3 >> 25) + (11 << 21);
    for (i = 0; i < 3; i++) root = (root + square / root) / 2;
    root -= root * root > square;
    /* A tie is impossible: 1/sqrt(n) is either one bit or an infinite fraction. */
    return attn__float(((125 - h) << 23) + (unsigned)((root + 2) >> 2));
}

/* Returns x as outputs store it: +0 for -0, and one NaN. */
ATTN__INLINE float attn__clean(float x)
{
    x += 0.0f;
    return x != x ? attn__nan() : x;
}

#ifndef ATTN_NO_LAYERS
static void attn__activate_scalar(float *y, const float *x, const float *gate, size_t n,
                                  attn_activation kind)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const float f = kind == ATTN_GELU ? attn__gelu(x[i])
                      : kind == ATTN_SILU ? attn__silu(x[i]) : attn__gelu_tanh(x[i]);
        y[i] = attn__clean(gate ? attn__fma(f, gate[i], 0.0f) : f);
    }
}

/* Adds x[i] .. x[n-1], or their squares, to lane i % 16, and returns the sum of the lanes: the tree
   +8, +4, +2, +1. The square of a float is exact in double, so contraction changes nothing. */
ATTN__INLINE double attn__norm_lanes(double lane[16], const float *x, int i, int n, int squares)
{
    for (; i < n; i++) lane[i % 16] += squares ? (double)x[i] * (double)x[i] : (double)x[i];
    for (i = 0; i < 8; i++) lane[i] += lane[i + 8];
    for (i = 0; i < 4; i++) lane[i] += lane[i + 4];
    for (i = 0; i < 2; i++) lane[i] += lane[i + 2];
    return lane[0] + lane[1];
}

static void attn__norm_scalar(const attn__norm_row *f)
{
    double lanes[16] = { 0 }, lanes2[16] = { 0 }, squares, inverse;
    const float *x = f->x;
    float root;
    int i;
    if (f->kind == ATTN_NORM_LAYER) {
        /* The mean is a sum of two floats. Distances from it are stored in y. */
        const double mean = attn__norm_lanes(lanes, x, 0, f->n, 0) / f->n;
        const float high = (float)mean, low = (float)(mean - (double)high);
        for (i = 0; i < f->n; i++) {
            const float d = x[i] - high;
            f->y[i] = d - low;
        }
        x = f->y;
    }
    squares = attn__norm_lanes(lanes2, x, 0, f->n, 1) / f->n;
    squares += (double)f->eps;            /* one operation per assignment, for x87 */
    inverse = 1.0 / attn__sqrt(squares);
    root = (float)inverse;
    for (i = 0; i < f->n; i++) {
        const float normal = x[i] * root;
        f->y[i] = attn__clean(attn__fma(normal, f->weight ? f->weight[i] : 1.0f,
                                        f->bias ? f->bias[i] : 0.0f));
    }
}
#endif

#ifndef ATTN_NO_DELTA
/* scale * sum is an fma with +0: compilers would fuse a plain product with the sum of attn__clean,
   and an underflow would be stored as -0. No other product is a term of a sum. Operations are
   separate assignments, for x87. */
static void attn__delta_scalar(const attn__delta *f)
{
    int t, x, c;
    for (t = 0; t < f->rows; t++)
        for (x = 0; x < f->columns; x++) {
            const float *q = f->q + (ptrdiff_t)t * f->head_dim;
            const float *k = f->k + (ptrdiff_t)t * f->head_dim;
            float *s = f->state + x, *out = f->v + t * ATTN__DELTA_COLUMNS + x;
            float u = 0.0f, sum = 0.0f, d = *out;
            for (c = 0; c < f->head_dim; c++, s += f->state_row) {
                *s = f->e[(ptrdiff_t)t * f->e_row + (ptrdiff_t)c * f->e_step] * *s;
                u = attn__fma(k[c], *s, u);
            }
            if (!f->add) d = d - u;
            d = f->beta[t] * d;
            for (c = 0, s = f->state + x; c < f->head_dim; c++, s += f->state_row) {
                *s = attn__clean(attn__fma(k[c], d, *s));
                sum = attn__fma(q[c], *s, sum);
            }
            *out = attn__clean(attn__fma(f->scale, sum, 0.0f));
        }
}

static void attn__decay_scalar(float *e, const float *g, int n)
{
    int i;
    for (i = 0; i < n; i++) {
        const int grows = g[i] > 0.0f;
        const float y = attn__exp(grows ? 0.0f - g[i] : g[i]);
        e[i] = grows ? 1.0f / y : y;
    }
}

static void attn__conv_scalar(float *y, const float *const *x, const float *w, int w_row, int width,
                              int n)
{
    int i, j;
    for (i = 0; i < n; i++) {
        float sum = w[width * w_row + i];
        for (j = 0; j < width; j++) sum = attn__fma(w[j * w_row + i], x[j][i], sum);
        y[i] = attn__clean(sum);
    }
}
#endif

/* ---- storage in 16 bits ------------------------------------------------------------------------
   Integer arithmetic, independent of the rounding mode and of denormal flushing (the only product
   of floats is exact). The conversion instructions in the kernels give the same bits. */

/* Returns u / 2^shift, rounded to nearest even. */
ATTN__INLINE unsigned attn__round_shift(unsigned u, unsigned shift)
{
    return (u + (1u << (shift - 1)) - 1u + (u >> shift & 1u)) >> shift;
}

static unsigned short attn__narrow_one(float x, attn_storage storage)
{
    const unsigned u = attn__bits(x), size = u & 0x7fffffffu, sign = u >> 16 & 0x8000u;
    const unsigned exponent = size >> 23, shift = 126 - exponent;
    unsigned h;
    /* A carry out of the fraction increments the exponent, and from the largest one gives Inf. */
    if (storage == ATTN_BF16)
        return (unsigned short)(size > 0x7f800000u ? u >> 16 | 0x40u : attn__round_shift(u, 16));
    if (size > 0x7f800000u) h = 0x7e00u | (size >> 13 & 0x3ffu);             /* NaN, quietened */
    else if (size >= 0x477ff000u) h = 0x7c00u;                               /* 65520, and Inf */
    else if (exponent > 112) h = attn__round_shift(size - (112u << 23), 13);
    else if (shift > 24) h = 0;                                              /* below 2^-25 */
    else h = attn__round_shift((size & 0x7fffffu) | 0x800000u, shift);       /* in units of 2^-24 */
    return (unsigned short)(sign | h);
}

/* Returns bits, because loading a NaN into an x87 register would quieten it. */
ATTN__INLINE unsigned attn__widen_bits(unsigned h, attn_storage storage)
{
    const unsigned sign = (h & 0x8000u) << 16, size = h & 0x7fffu;
    if (storage == ATTN_BF16) return h << 16;
    if (size < 0x400u)                                      /* denormal: in units of 2^-24 */
        return sign | attn__bits((float)(int)size * 5.9604644775390625e-8f);
    if (size < 0x7c00u) return sign | ((size << 13) + (112u << 23));
    /* Inf, or a quietened NaN */
    return sign | 0x7f800000u | (size & 0x3ffu) << 13 | (size > 0x7c00u ? 0x400000u : 0);
}

/* Inlined into kernels: if the compiler does not clear the upper halves of wide registers before a
   call (gcc with -fipa-ra), the call costs about 100 ns. */
ATTN__INLINE float attn__widen_one(unsigned h, attn_storage storage)
{
    return attn__float(attn__widen_bits(h, storage));
}

/* Returns value i of the row stored at p (lane -1), or of this lane of a panel, without its
   scale. */
ATTN__INLINE float attn__stored(const void *p, int lane, size_t i, attn_storage storage)
{
    const size_t cell = attn__cell_of(i, lane, attn__formats[storage].together);
    if (storage == ATTN_F32) return ((const float *)p)[cell];
    if (storage == ATTN_Q8) return (float)((const signed char *)p)[cell];
    return attn__widen_one(((const unsigned short *)p)[cell], storage);
}

/* Convert n values of a row to a 16-bit format and back. */
static void attn__narrow_scalar(void *to, const float *from, size_t n, attn_storage storage)
{
    unsigned short *narrow = (unsigned short *)to;
    size_t i;
    for (i = 0; i < n; i++) narrow[i] = attn__narrow_one(from[i], storage);
}

static void attn__widen_scalar(float *to, const void *from, size_t n, attn_storage storage)
{
    const unsigned short *narrow = (const unsigned short *)from;
    size_t i;
    for (i = 0; i < n; i++) {
        const unsigned u = attn__widen_bits(narrow[i], storage);
        memcpy(to + i, &u, sizeof u);
    }
}

/* ---- storage in 8 bits: a row is integers and a scale ---------------------------------------- */
/* Returns the scale of values whose largest size has the bits `most`: this size / 127. Sets *by to
   the factor of attn__q8_round. NaN or Inf give the scale NaN, and a size below 2^-119 gives 0; the
   integers of both are 0. So neither quotient overflows or is denormal. */
ATTN__INLINE float attn__q8_scale_of(unsigned most, float *by)
{
    *by = 0.0f;
    if (most > 0x7f7fffffu) return attn__nan();
    if (most < 0x04000000u) return 0.0f;
    *by = 127.0f / attn__float(most);
    return attn__float(most) / 127.0f;
}

/* Returns the scale of the n values x[i] * times. Sets *by as attn__q8_scale_of does. */
static float attn__q8_scale(const float *x, size_t n, float times, float *by)
{
    unsigned most = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const unsigned size = attn__bits(x[i] * times) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    return attn__q8_scale_of(most, by);
}

/* Returns x * by, rounded once to the nearest integer, to even if there are two. The product is
   exact in double, but not its sum with a large number, which x87 would round twice. */
ATTN__INLINE float attn__q8_round(float x, float by)
{
    const double exact = by > 0.0f ? (double)x * (double)by : 0.0;
    const int whole = (int)exact, odd = whole & 1;       /* towards 0 in any rounding mode */
    const double rest = exact - (double)whole;
    const int up = rest > 0.5 || (rest >= 0.5 && odd), down = rest < -0.5 || (rest <= -0.5 && odd);
    return (float)(whole + up - down);
}

static float attn__round_row_scalar(signed char *to, const float *x, size_t n, int *sum)
{
    float by;
    const float scale = attn__q8_scale(x, n, 1.0f, &by);
    size_t i;
    *sum = 0;
    for (i = 0; i < n; i++) {
        to[i] = (signed char)attn__q8_round(x[i], by);
        if (n <= ATTN__Q8_WIDEST) *sum += to[i];
    }
    return scale;
}

#ifndef ATTN_NO_LAYERS
static void attn__linear_bytes_scalar(const attn__byte_linear *g)
{
    int r, x, b, i;
    for (r = 0; r < g->rows; r++)
        for (x = 0; x < g->columns; x++) {
            const attn__byte_panel *w = g->w + x / ATTN__PANEL * g->w_panel;
            const attn__byte_block *block = g->x + r * g->x_row;
            float *to = g->y + r * g->y_row + x, y = g->bias ? g->bias[x] : 0.0f;
            for (b = 0; b < g->blocks; b++, w++, block++) {
                const float scale = block->scale * w->scale[x % ATTN__PANEL];
                int sum = 0;
                for (i = 0; i < ATTN__BLOCK; i++)
                    sum += block->n[i] * w->n[attn__cell_of((size_t)i, x % ATTN__PANEL, 4)];
                y = attn__fma((float)sum, scale, y);
            }
            if (!g->bias) y = *to + y;
            *to = y != y ? attn__nan() : y;
        }
}
#endif

/* Returns a stored value as a float; scale NULL: its format has none. */
ATTN__INLINE float attn__scaled(float x, const float *scale)
{
    return scale ? attn__clean(x * *scale) : x;
}

/* ---- one row of attention -------------------------------------------------------------------- */

/* Sets the keys that row i of entry e may see by position alone: *from <= j < *to, counted from
   e->start. attn__row_set calls it for the driver and this section. */
static void attn__visible(const attn__call *call, const attn__entry *e, int i, int *from, int *to)
{
    const long long p = e->pos + i;
    long long lo = e->start, hi = lo + e->keys;
    if (call->causal && hi > p + 1) hi = p + 1;
    if (call->window_left > 0 && lo < p - call->window_left + 1) lo = p - call->window_left + 1;
    if (call->window_right > 0 && hi > p + call->window_right) hi = p + call->window_right;
    *from = lo < hi ? (int)(lo - e->start) : 0;
    *to = lo < hi ? (int)(hi - e->start) : 0;
}

/* Returns how many of the first `chunks` chunks of the sequence still exist. */
static int attn__chunks_there(const attn__entry *e, int chunks)
{
    const int from = e->gap_from / ATTN__CHUNK, to = e->gap_to / ATTN__CHUNK;
    return chunks <= from ? chunks : chunks <= to ? from : chunks - (to - from);
}

/* Returns the first key of a chunk. Chunk numbers skip the chunks that a cache has forgotten. */
static int attn__chunk_key(const attn__entry *e, int chunk)
{
    const int key = chunk * ATTN__CHUNK;          /* ATTN__SIZE_MAX leaves room for a chunk more */
    return key < e->gap_from ? key : key + (e->gap_to - e->gap_from);
}

/* Sets *first .. *end - 1 to the chunks that contain the existing keys of lo .. hi - 1. */
static void attn__chunks_of(const attn__entry *e, int lo, int hi, int *first, int *end)
{
    *first = attn__chunks_there(e, lo / ATTN__CHUNK);
    *end = attn__chunks_there(e, (hi + ATTN__CHUNK - 1) / ATTN__CHUNK);
}

/* Returns the page of a chunk; -1: the entry has no such page, or no cache. */
ATTN__INLINE int attn__chunk_page(const attn__entry *e, int chunk)
{
    return chunk < e->n_pages ? e->pages[chunk] : -1;
}

/* Returns the page of a cache that holds a key. */
ATTN__INLINE int attn__entry_page(const attn__entry *e, int key)
{
    return e->pages[attn__chunks_there(e, key / ATTN__CHUNK)];
}

/* Returns the index of a row in lse, [batch][heads][n_q]. */
ATTN__INLINE size_t attn__row_index(const attn__call *call, const attn__rowref *row)
{
    return ((size_t)row->b * (size_t)call->heads + (size_t)row->h) * (size_t)call->n_q +
           (size_t)row->i;
}

/* Returns where the state of a row begins in a set of states. */
ATTN__INLINE size_t attn__row_state(const attn__call *call, const attn__rowref *row)
{
    return attn__row_index(call, row) * ATTN_STATE(call->v_head_dim);
}

/* Returns the weights of a row, or NULL if they do not include its head. */
static float *attn__row_weights(const attn__call *call, const attn__rowref *row)
{
    int plane = row->h;
    if (!call->weights) return NULL;
    if (call->weights_heads) {
        for (plane = 0; plane < call->planes && call->weights_heads[plane] < row->h; ) plane++;
        if (plane == call->planes || call->weights_heads[plane] != row->h) return NULL;
    }
    return call->weights + (((size_t)row->b * (size_t)call->planes + (size_t)plane) *
                            (size_t)call->n_q + (size_t)row->i) * (size_t)call->n_k;
}

/* Returns the index of a row's first element in an array of ATTN__MASKS. */
ATTN__INLINE ptrdiff_t attn__cells_at(const attn__cells *cells, const attn__rowref *row)
{
    return row->b * cells->step[0] + row->h * cells->step[1] + row->i * cells->step[2];
}

/* Sets what a row reads beside q, k and v, from the entry's first key on. */
static void attn__row_arrays(const attn__call *call, int start, attn__rowref *row)
{
    const ptrdiff_t extent = call->rel_extent;
    const attn__cells *cells = call->cells;
#define ATTN__PLACE_OF(name, type, heads) \
    row->name = cells->at ? (const type *)cells->at + attn__cells_at(cells, row) + start : NULL; \
    cells++;
    ATTN__MASKS(ATTN__PLACE_OF)
#undef ATTN__PLACE_OF
    row->rel = call->rel_bias ? call->rel_bias + row->h * (2 * extent + 1) + extent : NULL;
    row->slope = call->alibi_slopes ? call->alibi_slopes[row->h] : 0.0f;
}

/* Sets *row to row i of head h of entry e. */
static void attn__row_set(const attn__call *call, const attn__entry *e, int h, int i,
                          attn__rowref *row)
{
    row->b = e->b;
    row->h = h;
    row->i = i;
    /* NULL when only rows of padding are left, which have neither q nor out */
    row->q = e->q ? e->q + h * call->q[2] + i * call->q[1] : NULL;
    row->out = e->out ? e->out + h * call->out[2] + i * call->out[1] : NULL;
    row->position = e->pos + i - e->start;
    row->rel_extent = call->rel_extent;
    attn__visible(call, e, i, &row->from, &row->to);
    attn__row_arrays(call, e->start, row);
}

/* One query row and everything it reads. Keys count from the first key that exists. */
typedef struct attn__query {
    const attn__call *call;
    const attn__entry *e;
    attn__rowref row;
    float q_scale, q_by;                  /* of q * scale in 8 bits, if keys have 8 */
} attn__query;

/* Returns the location of a key that exists: its row (lane -1), or its panel and lane. */
static const void *attn__key(const attn__query *r, int key, int *lane)
{
    const attn_kv *kv = r->call->kv;
    const int head = r->row.h / r->call->group, in_page = key % ATTN__CHUNK;
    if (kv) return attn__page_key(kv, attn__entry_page(r->e, key), head, in_page, lane);
    *lane = -1;
    return r->e->k + head * r->call->k[2] + (r->e->start + key) * r->call->k[1];
}

/* Returns the row of V of a key. */
static const void *attn__value(const attn__query *r, int key)
{
    const attn_kv *kv = r->call->kv;
    const int head = r->row.h / r->call->group, in_page = key % ATTN__CHUNK;
    if (kv) return attn__page_value(kv, attn__entry_page(r->e, key), head, in_page);
    return r->e->v + head * r->call->v[2] + (r->e->start + key) * r->call->v[1];
}

/* Returns the scale of a key, or of its value (of_v 1); NULL if the format has none. */
static const float *attn__key_scale(const attn__query *r, int key, int of_v)
{
    const attn_kv *kv = r->call->kv;
    if (!kv) return NULL;
    return attn__page_scale(kv, attn__entry_page(r->e, key), r->row.h / r->call->group,
                            key % ATTN__CHUNK, of_v);
}

/* Returns the value of rel_bias for a key, 0 without rel_bias. */
static float attn__scalar_rel(const attn__query *r, int key)
{
    const long long extent = r->call->rel_extent, distance = key - r->row.position;
    if (!r->row.rel) return 0.0f;
    return r->row.rel[distance < -extent ? -extent : distance > extent ? extent : distance];
}

/* Returns 1 if the row sees a key that exists. */
static int attn__scalar_sees(const attn__query *r, int key)
{
    const attn__rowref *row = &r->row;
    if (key < row->from || key >= row->to || (row->keep && !row->keep[key])) return 0;
#define ATTN__SEES(name, type, heads) && !(row->name && row->name[key] == -attn__inf())
    return attn__scalar_rel(r, key) != -attn__inf() ATTN__ADDED(ATTN__SEES);
#undef ATTN__SEES
}

/* Returns the score of a key at a stage. RAW: the product. CAPPED: after softcap. Other stages:
   with all biases added. */
static float attn__scalar_score(const attn__query *r, int key, attn_stage stage)
{
    const attn__call *call = r->call;
    int lane, c;
    const void *k = attn__key(r, key, &lane);
    const float *scale = attn__key_scale(r, key, 0);
    float t = 0.0f;
    /* q * scale is rounded by itself: kernels compute it once for all keys. With keys in 8 bits it
       is rounded to 8 bits too, and the sum is an exact integer. */
    for (c = 0; c < call->head_dim; c++) {
        float q = r->row.q[c] * call->scale;
        if (scale) q = attn__q8_round(q, r->q_by);
        t = attn__fma(q, attn__stored(k, lane, (size_t)c, call->k_stored), t);
    }
    if (scale) t = attn__fma(t, *scale * r->q_scale, 0.0f);
    if (stage == ATTN_SCORES_RAW) return t;
    if (call->softcap > 0.0f)
        t = attn__fma(call->softcap, attn__tanh(t / call->softcap), 0.0f);
    if (stage == ATTN_SCORES_CAPPED) return t;
    if (call->alibi_slopes) {
        /* Two exact steps, from the row to the chunk and from there to the key, as in the
           kernels. */
        const int in_chunk = key % ATTN__CHUNK;
        const float chunk_pos = (float)attn__double_of(r->row.position - (key - in_chunk));
        const float away = chunk_pos - (float)in_chunk;
        t = attn__fma(r->row.slope, away < 0.0f ? away : 0.0f - away, t);
    }
    if (call->rel_bias) t += attn__scalar_rel(r, key);
#define ATTN__ADD(name, type, heads) if (r->row.name) t += r->row.name[key];
    ATTN__ADDED(ATTN__ADD)
#undef ATTN__ADD
    return t;
}

/* Updates the state (M, L) of a row with (m, l) of more keys. *a and *b are the factors of the two
   sums of outputs. */
static void attn__scalar_factors(float *M, float *L, float m, float l, float *a, float *b)
{
    const float top = *M > m ? *M : m;
    /* exp(-inf - -inf) would be NaN. */
    *a = top == -attn__inf() ? 1.0f : attn__exp(*M - top);
    *b = top == -attn__inf() ? 1.0f : attn__exp(m - top);
    *L = attn__fma(*L, *a, l * *b);
    *M = top;
}

/* Folds the chunk of 128 keys that begins at `first` into the state (M, L, out) of the row. Returns
   the number of keys that the row sees. */
static int attn__scalar_chunk(const attn__query *r, int first, float *M, float *L, float *out)
{
    const int end = attn__min(first + ATTN__CHUNK, r->e->keys);
    float p[ATTN__CHUNK], lane[16], m = -attn__inf(), top, a, b;
    int key[ATTN__CHUNK], n = 0, j, x, half;

    /* Scores of visible keys. A NaN becomes m, which makes the row NaN. */
    for (j = first; j < end; j++) {
        if (!attn__scalar_sees(r, j)) continue;
        key[n] = j;
        p[n] = attn__scalar_score(r, j, ATTN_SCORES_BIASED);
        if (p[n] > m || p[n] != p[n]) m = p[n];
        n++;
    }
    if (n == 0) return 0;

    /* Probabilities, summed like a vector of 16 lanes, which are then added in a tree. */
    top = m == -attn__inf() ? 0.0f : m;
    for (j = 0; j < 16; j++) lane[j] = 0.0f;
    for (j = 0; j < n; j++) {
        p[j] = attn__exp(p[j] - top);
        lane[key[j] % 16] += p[j];
    }
    for (half = 8; half > 0; half /= 2)
        for (j = 0; j < half; j++) lane[j] += lane[j + half];

    /* Outputs of the chunk, one chain per column, then the fold. A scale of V is a factor of p. */
    attn__scalar_factors(M, L, m, lane[0], &a, &b);
    for (j = 0; j < n; j++) p[j] = attn__scaled(p[j], attn__key_scale(r, key[j], 1));
    for (x = 0; x < r->call->v_head_dim; x++) {
        float o = 0.0f;
        for (j = 0; j < n; j++) {
            const void *v = attn__value(r, key[j]);
            o = attn__fma(p[j], attn__stored(v, -1, (size_t)x, r->call->v_stored), o);
        }
        out[x] = attn__fma(out[x], a, o * b);
    }
    return n;
}

/* Returns one element of the weights. RAW and CAPPED give the score of every key that exists. */
static float attn__scalar_weight(const attn__query *r, int key, float M, float L)
{
    const attn__entry *e = r->e;          /* a cache may have forgotten the key */
    const int shown = key >= 0 && key < e->keys && (key < e->gap_from || key >= e->gap_to) &&
                      (r->call->raw || attn__scalar_sees(r, key));
    const int probability = r->call->weights_stage == ATTN_PROBABILITIES;
    float t;
    if (!shown) return probability ? 0.0f : -attn__inf();
    t = attn__scalar_score(r, key, r->call->weights_stage);
    return attn__clean(probability ? attn__exp(t - M) / L : t);
}

/* Reads the state of a row that the call starts with: M, L and, into out, O. Returns 1 if the row
   has seen keys; otherwise nothing after `seen` is read. state NULL: starts empty. */
static int attn__carry_get(const float *state, float *M, float *L, float *out, int v_head_dim)
{
    const int seen = state && state[2] != 0.0f;
    *M = seen ? state[0] : -attn__inf();
    *L = seen ? state[1] : 0.0f;
    if (!seen) memset(out, 0, (size_t)v_head_dim * sizeof(float));
    else if (out != state + 4) memcpy(out, state + 4, (size_t)v_head_dim * sizeof(float));
    return seen;
}

/* Writes the state of a row except O. Kernels may lose a NaN of M, never a NaN of L. */
static void attn__carry_put(float *state, float M, float L, int seen)
{
    state[0] = seen ? attn__clean(L != L ? L : M) : -attn__inf();
    state[1] = seen ? attn__clean(L) : 0.0f;
    state[2] = seen ? 1.0f : 0.0f;
    state[3] = 0.0f;
}

/* Completes a state whose O is already in place, but not yet cleaned. */
static void attn__carry_close(float *state, float M, float L, int seen, int v_head_dim)
{
    int x;
    attn__carry_put(state, M, L, seen);
    for (x = 4; x < v_head_dim + 4; x++) state[x] = seen ? attn__clean(state[x]) : 0.0f;
}

/* Returns the floats of the states of all rows. */
ATTN__INLINE size_t attn__carry_floats(const attn__call *call)
{
    return (size_t)call->batch * (size_t)call->heads * (size_t)call->n_q *
           ATTN_STATE(call->v_head_dim);
}

/* Writes the state of each chunk separately. Parts without a chunk have seen no key. */
static void attn__scalar_parts(const attn__query *r, float *state)
{
    const int v_head_dim = r->call->v_head_dim;
    int part, first, chunks;
    attn__chunks_of(r->e, 0, r->e->keys, &first, &chunks);
    for (part = 0; part < r->call->parts; part++, state += attn__carry_floats(r->call)) {
        float M, L;
        int seen = attn__carry_get(NULL, &M, &L, state + 4, v_head_dim);
        if (part < chunks)
            seen = attn__scalar_chunk(r, attn__chunk_key(r->e, part), &M, &L, state + 4);
        attn__carry_close(state, M, L, seen, v_head_dim);
    }
}

/* Finishes a row that has seen a key: the sink, the division, lse. A sink is an additional key with
   a score and no value. */
static void attn__scalar_finish(const attn__query *r, float *M, float *L, float *out)
{
    const attn__call *call = r->call;
    int x;
    if (call->sinks) {
        const float sink = call->sinks[r->row.h];
        float fa, fb;
        attn__scalar_factors(M, L, sink, sink == -attn__inf() ? 0.0f : 1.0f, &fa, &fb);
        for (x = 0; x < call->v_head_dim; x++) out[x] = attn__fma(out[x], fa, 0.0f * fb);
    }
    for (x = 0; x < call->v_head_dim; x++) out[x] = attn__clean(out[x] / *L);
    if (call->lse) call->lse[attn__row_index(call, &r->row)] = attn__clean(*M + attn__log(*L));
}

/* Computes row i of head h of an entry. Returns 1 if the masks hide every key from it. */
static int attn__scalar_row(const attn__call *call, const attn__entry *e, int h, int i)
{
    attn__query r;
    float *weights, *state, *out;
    float M = 0.0f, L = 0.0f;
    size_t at;
    int chunk, end, j, seen = 1;

    r.call = call;
    r.e = e;
    attn__row_set(call, e, h, i, &r.row);
    r.q_scale = r.q_by = 0.0f;
    if (call->k_stored == ATTN_Q8)
        r.q_scale = attn__q8_scale(r.row.q, (size_t)call->head_dim, call->scale, &r.q_by);
    weights = attn__row_weights(call, &r.row);
    at = attn__row_state(call, &r.row);
    state = call->carry_out ? call->carry_out + at : NULL;
    out = state ? state + 4 : r.row.out;
    if (call->parts) {
        attn__scalar_parts(&r, state);
    } else {
        seen = attn__carry_get(call->carry_in ? call->carry_in + at : NULL, &M, &L, out,
                               call->v_head_dim);
        attn__chunks_of(e, r.row.from, r.row.to, &chunk, &end);
        for (; chunk < end; chunk++)
            seen += attn__scalar_chunk(&r, attn__chunk_key(e, chunk), &M, &L, out);
        /* An empty row stays empty, even with sinks. */
        if (state) attn__carry_close(state, M, L, seen, call->v_head_dim);
        else if (seen) attn__scalar_finish(&r, &M, &L, out);
        else if (call->lse) call->lse[attn__row_index(call, &r.row)] = -attn__inf();
    }
    for (j = 0; weights && j < call->n_k; j++)
        weights[j] = attn__scalar_weight(&r, j - e->start, M, L);
    return !seen;
}

/* ---- packing and the product of section 2 in plain C, for the linears of this backend -------- */
static void attn__pack_k_scalar(float *panels, const float *k, ptrdiff_t row, int n, int depth)
{
    ptrdiff_t c;                                            /* c * 16 may exceed an int */
    int j;
    /* The last panel is padded with copies of the last key, as in the kernels. */
    for (; n > 0; n -= 16, k += 16 * row, panels += 16 * (size_t)depth)
        for (c = 0; c < depth; c++)
            for (j = 0; j < 16; j++) panels[c * 16 + j] = k[attn__min(j, n - 1) * row + c];
}

static void attn__gemm_scalar(const attn__gemm *g)
{
    int r, x, t;
    for (r = 0; r < g->rows; r++)
        for (x = 0; x < g->n_panels * 16; x++) {
            const float *a = g->a + r * g->a_row;
            float *c = g->c + r * g->c_row + x;
            float sum = g->from ? g->from[r * g->from_row + x] : 0.0f;
            size_t b = (size_t)(x / 16 * g->b_panel + x % 16);
            for (t = 0; t < g->depth; t++, b += (size_t)g->b_step)
                sum = attn__fma(a[t], attn__stored(g->b, -1, b, g->stored), sum);
            *c = g->fold_a ? attn__fma(*c, g->fold_a[r], sum * g->fold_b[r]) : sum;
        }
}

static int attn__reads_scalar(attn_storage storage)
{
    (void)storage;
    return 1;
}

/* The fold of section 2, for states of this backend. */
static void attn__fold_scalar(float *M, float *L, const float *m, const float *l, float *a,
                              float *b, int n)
{
    int r;
    for (r = 0; r < n; r++) attn__scalar_factors(M + r, L + r, m[r], l[r], a + r, b + r);
}

static void attn__fold_out_scalar(float *o, const float *x, float a, float b, int n)
{
    int i;
    for (i = 0; i < n; i++) o[i] = attn__fma(o[i], a, x ? x[i] * b : 0.0f);
}

#define ATTN__IN_ALL(name) attn__##name##_scalar
#define ATTN__IN_VECTOR(name) NULL
#define ATTN__ENTRY(backends, result, name, parameters) ATTN__IN_##backends(name),
static const attn__kernels attn__kernels_scalar = { ATTN_SCALAR, 1, ATTN__KERNELS(ATTN__ENTRY) };
#undef ATTN__ENTRY

/* =================================================================================================
 * 4  CPU DETECTION, DISPATCH, FLOATING-POINT ENVIRONMENT
 *
 * The target decides which backends are compiled. Where machines of one target differ (x86, RISC-V,
 * WebAssembly), one is chosen at run time. Flags that the fast backends need:
 *     x86-64         none: every build has SSE2, AVX2 and AVX-512
 *     x86, 32 bits   -msse2 -mfpmath=sse (MSVC: none) for the same three. The second avoids the
 *                    excess precision of x87 in plain C code
 *     ARM, 64 bits   none: NEON, little-endian. Products of 8 bits use SDOT if Linux reports it. On
 *                    other systems the compiler decides: Apple's uses it for macOS, gcc and
 *                    clang need -march=armv8.2-a+dotprod
 *     ARM, 32 bits   scalar backend only, because its NEON always flushes denormals. -mfpu=vfpv4
 *                    makes a multiply-add one instruction
 *     WebAssembly    -msimd128: ATTN_WASM. -mrelaxed-simd (clang 16 or later) adds ATTN_WASM_FMA,
 *                    which is used if the engine's relaxed_madd rounds once, as on processors with
 *                    fma. Engines without relaxed SIMD reject such a module
 *     RISC-V 64      clang 19 or later, for Linux: none; vectors (V 1.0, 128 bits or more) are used
 *                    if the kernel (6.5 or later) reports them. Other systems: -march=rv64gcv. With
 *                    rv64gcv_zvl256b, 8 floats take one register, not two. gcc: scalar backend,
 *                    because its C vectors have no fma
 *     all others     scalar backend only; the same with tcc and with ATTN_NO_SIMD
 * ============================================================================================== */
#if !defined(ATTN_NO_SIMD) && !defined(__TINYC__)
#if (defined(__x86_64__) || defined(_M_X64) || (defined(__i386__) && defined(__SSE2__)) || \
     (defined(_M_IX86_FP) && _M_IX86_FP + 0 >= 2)) && \
    (defined(__GNUC__) || defined(__clang__) || defined(_MSC_VER))
#define ATTN__X86
#elif (defined(__aarch64__) && !defined(__AARCH64EB__)) || defined(_M_ARM64)
#define ATTN__NEON
#if defined(__linux__) && !defined(__ARM_FEATURE_DOTPROD) && !defined(ATTN__MSAN) && \
    (defined(__GNUC__) || defined(__clang__))
#define ATTN__NEON_ASKS                   /* detect SDOT at run time */
#endif
#elif defined(__wasm_simd128__)
#define ATTN__WASM
#if defined(__wasm_relaxed_simd__) && defined(__clang__) && __clang_major__ >= 16
#define ATTN__WASM_FMA
#endif
#elif defined(__riscv_flen) && defined(__clang__) && \
    (defined(__riscv_v) || defined(__linux__)) && __riscv_xlen == 64 && __clang_major__ >= 19
#define ATTN__RVV
#if !defined(__riscv_v) && !defined(ATTN__RVV_USABLE)   /* tests define ATTN__RVV_USABLE */
#define ATTN__RVV_ASKS                    /* detect vector instructions at run time */
#endif
#endif
#endif

#ifdef ATTN__X86
#include <immintrin.h>
/* clang-cl omits these from immintrin.h. */
#if defined(_MSC_VER) && defined(__clang__) && !defined(__AVX512F__)
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#include <f16cintrin.h>
#include <avx512fintrin.h>
#include <avx512vnniintrin.h>
#endif
#elif defined(ATTN__NEON)
#include <arm_neon.h>
#ifdef ATTN__NEON_ASKS
#include <sys/auxv.h>
#endif
#elif defined(ATTN__WASM)
#include <wasm_simd128.h>
#elif defined(ATTN__RVV_ASKS)
#include <sys/auxv.h>
#endif

/* ---- CPU detection --------------------------------------------------------------------------- */
/* Tests simulate older processors with this mask of usable backends: bit ATTN_x for each backend,
 * bit ATTN__CPU_F16C for the conversions of half, and bit ATTN__CPU_VNNI or _SDOT for dot products
 * of bytes. */
enum { ATTN__CPU_F16C = 16, ATTN__CPU_VNNI = 17, ATTN__CPU_SDOT = 18 };
#ifndef ATTN_CPU_MASK
#define ATTN_CPU_MASK (~0u)
#endif

#ifdef ATTN__X86
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#define ATTN__CPUID(leaf, r) __cpuidex((int *)(r), leaf, 0)
#define ATTN__XGETBV(low)    (void)((low) = (unsigned)_xgetbv(0))
#else
#include <cpuid.h>
#define ATTN__CPUID(leaf, r) __cpuid_count(leaf, 0, (r)[0], (r)[1], (r)[2], (r)[3])
/* Emitted as bytes, because the mnemonic needs -mxsave. */
#define ATTN__XGETBV(low)    __asm__ volatile(".byte 0x0f, 0x01, 0xd0" : "=a"(low) : "c"(0) : "edx")
#endif

/* Returns the usable backends. Bit ATTN_x: the processor has the instructions and the operating
   system saves the registers. Bit ATTN__CPU_F16C: AVX2 can also convert half. */
static ATTN__NOINLINE unsigned attn__cpu_ask(void)
{
    unsigned r[4], most, leaf1, leaf7 = 0, leaf7c = 0, os = 0, word = 1u << ATTN_SSE2;
    ATTN__CPUID(0, r);
    most = r[0];
    ATTN__CPUID(1, r);
    leaf1 = r[2];
    if (most >= 7) { ATTN__CPUID(7, r); leaf7 = r[1]; leaf7c = r[2]; }
    if (leaf1 & 1u << 27) { ATTN__XGETBV(os); }     /* bit 27: xgetbv is allowed */
    /* the system saves YMM registers; the processor has AVX, FMA and AVX2 */
    if ((os & 6u) == 6u && (leaf1 & 1u << 28) && (leaf1 & 1u << 12) && (leaf7 & 1u << 5)) {
        word |= 1u << ATTN_AVX2;
        if (leaf1 & 1u << 29) word |= 1u << ATTN__CPU_F16C;
        /* the system saves ZMM and mask registers; the processor has AVX-512F */
        if ((os & 0xe6u) == 0xe6u && (leaf7 & 1u << 16)) {
            word |= 1u << ATTN_AVX512;
            if ((leaf7 & 1u << 30) && (leaf7c & 1u << 11)) word |= 1u << ATTN__CPU_VNNI;   /* BW */
        }
    }
    return (word & ATTN_CPU_MASK) | 1u << ATTN_SCALAR;
}
#elif defined(ATTN__NEON_ASKS)
static ATTN__NOINLINE unsigned attn__cpu_ask(void)
{
    unsigned word = 1u << ATTN_NEON;
    if (getauxval(AT_HWCAP) & 1u << 20) word |= 1u << ATTN__CPU_SDOT;        /* HWCAP_ASIMDDP */
    return (word & ATTN_CPU_MASK) | 1u << ATTN_SCALAR;
}
#elif defined(ATTN__RVV_ASKS)
/* Two sources must agree. Bit 'V' of the auxiliary vector is cleared if the process may not use
   vectors, but older vendor kernels set it for the draft 0.7, which has other encodings.
   riscv_hwprobe reports V 1.0; kernels without this call (-ENOSYS) never support V 1.0. The call is
   written in assembly, because older system headers do not declare it. */
static ATTN__NOINLINE unsigned attn__cpu_ask(void)
{
    struct { long long key; unsigned long long value; } pair = { 4, 0 };   /* extensions */
    register long number __asm__("a7") = 258;
    register long answer __asm__("a0") = (long)&pair;                      /* and first argument */
    register long pairs __asm__("a1") = 1, cpus __asm__("a2") = 0, set __asm__("a3") = 0;
    register long flags __asm__("a4") = 0;
    unsigned word = 0;
    __asm__ __volatile__("ecall" : "+r"(answer)
                         : "r"(number), "r"(pairs), "r"(cpus), "r"(set), "r"(flags) : "memory");
    if (answer == 0 && pair.key == 4 && (pair.value >> 2 & 1u) &&
        (getauxval(AT_HWCAP) >> ('V' - 'A') & 1u)) word = 1u << ATTN_RVV;
    return (word & ATTN_CPU_MASK) | 1u << ATTN_SCALAR;
}
#endif

#ifdef ATTN__WASM_FMA
typedef float attn__wasm_floats __attribute__((vector_size(16)));
/* Returns a * b + c, rounded once or twice, depending on the engine. */
ATTN__INLINE v128_t attn__wasm_madd(v128_t a, v128_t b, v128_t c)
{
    return (v128_t)__builtin_wasm_relaxed_madd_f32x4((attn__wasm_floats)a, (attn__wasm_floats)b,
                                                     (attn__wasm_floats)c);
}

/* Returns 1 if this engine rounds once. By the standard its choice is the same for all lanes and
   calls. */
static ATTN__NOINLINE int attn__wasm_rounds_once(void)
{
    /* One case of a, b, c and a * b + c per lane. Rounded twice, the first is 1 + 2^-11 (also if
       the first rounding is to double), the second 0, the third Inf, the last 2^-149. */
    static const float cases[4][4] = {
        { 1.000244140625f, 1.000244140625f, 3.402823466e38f, 2.6469779601696886e-23f },
        { 1.000244140625f, 1.000244140625f, 2.0f, 2.6469779601696886e-23f },
        { 8.673617379884035e-19f, -1.00048828125f, -3.402823466e38f, 1.401298464324817e-45f },
        { 1.0004884004592896f, 5.9604644775390625e-8f, 3.402823466e38f, 2.802596928649634e-45f }
    };
    const float (*x)[4] = cases;
    __asm__("" : "+r"(x));                          /* keeps the compiler from evaluating this */
    return wasm_i32x4_all_true(wasm_i32x4_eq(
        attn__wasm_madd(wasm_v128_load(x[0]), wasm_v128_load(x[1]), wasm_v128_load(x[2])),
        wasm_v128_load(x[3])));
}

/* Detected in each call (5 ns) and not stored: memory may be a snapshot taken in another engine. If
   an engine changes its choice in spite of the standard, the next call detects it. */
static unsigned attn__cpu(void)
{
    const unsigned fma = attn__wasm_rounds_once() ? 1u << ATTN_WASM_FMA : 0u;
    return ((fma | 1u << ATTN_WASM) & ATTN_CPU_MASK) | 1u << ATTN_SCALAR;
}
#elif defined(ATTN__X86) || defined(ATTN__NEON_ASKS) || defined(ATTN__RVV_ASKS)
/* 0 until detection has run. Threads that detect at the same time store the same value. */
static unsigned attn__cpu_word;

static unsigned attn__cpu(void)
{
#if defined(__GNUC__) || defined(__clang__)
    unsigned word = __atomic_load_n(&attn__cpu_word, __ATOMIC_RELAXED);
    if (!word) __atomic_store_n(&attn__cpu_word, word = attn__cpu_ask(), __ATOMIC_RELAXED);
#else
    unsigned word = *(volatile unsigned *)&attn__cpu_word;
    if (!word) *(volatile unsigned *)&attn__cpu_word = word = attn__cpu_ask();
#endif
    return word;
}
#else
/* Everything compiled here runs on every processor of the target. */
static unsigned attn__cpu(void) { return ~0u; }
#endif

/* ---- the kernel pass: includes sections 11 and 12 once for each instruction set -------------- */
/* ATTN__ISA is one of these: the enumerators of attn_backend as preprocessor constants. */
#define ATTN__ISA_SSE2     2
#define ATTN__ISA_AVX2     3
#define ATTN__ISA_AVX512   4
#define ATTN__ISA_NEON     5
#define ATTN__ISA_WASM     6
#define ATTN__ISA_RVV      7
#define ATTN__ISA_WASM_FMA 8
#ifdef ATTN__X86
#ifndef ATTN_NO_SSE2
#define ATTN__ISA ATTN__ISA_SSE2
#include ATTN_SELF
#endif
#define ATTN__ISA ATTN__ISA_AVX2
#include ATTN_SELF
#ifndef ATTN_NO_AVX512
/* g++ 12 warns about its own header: some of its operations start from an undefined vector. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define ATTN__ISA ATTN__ISA_AVX512
#include ATTN_SELF
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif /* ATTN_NO_AVX512 */
#elif defined(ATTN__NEON)
#define ATTN__ISA ATTN__ISA_NEON
#include ATTN_SELF
#elif defined(ATTN__WASM)
#ifndef ATTN_NO_WASM
#define ATTN__ISA ATTN__ISA_WASM
#include ATTN_SELF
#endif
#ifdef ATTN__WASM_FMA
#define ATTN__ISA ATTN__ISA_WASM_FMA
#include ATTN_SELF
#endif
#elif defined(ATTN__RVV)
#define ATTN__ISA ATTN__ISA_RVV
#include ATTN_SELF
#endif

/* ---- dispatch -------------------------------------------------------------------------------- */
/* Backend names, indexed by attn_backend. */
static const char *const attn__backend_names[] = { "auto", "scalar", "sse2", "avx2", "avx512",
    "neon", "wasm", "rvv", "wasm_fma" };
enum { ATTN__BACKENDS = (int)(sizeof attn__backend_names / sizeof *attn__backend_names) };

/* Compiled backends, best first. */
static const attn__kernels *const attn__tables[] = {
#if defined(ATTN__X86)
#ifndef ATTN_NO_AVX512
    &attn__kernels_avx512,
#endif
    &attn__kernels_avx2,
#ifndef ATTN_NO_SSE2
    &attn__kernels_sse2,
#endif
#elif defined(ATTN__NEON)
    &attn__kernels_neon,
#elif defined(ATTN__WASM)
#ifdef ATTN__WASM_FMA
    &attn__kernels_wasm_fma,
#endif
#ifndef ATTN_NO_WASM
    &attn__kernels_wasm,
#endif
#elif defined(ATTN__RVV)
    &attn__kernels_rvv,
#endif
    &attn__kernels_scalar
};
enum { ATTN__TABLES = (int)(sizeof attn__tables / sizeof *attn__tables) };

/* Returns a usable backend (ATTN_AUTO: the best one), or NULL. */
static const attn__kernels *attn__table(attn_backend backend)
{
    const unsigned usable = attn__cpu();
    int i;
    for (i = 0; i < ATTN__TABLES; i++)
        if ((backend == ATTN_AUTO || backend == attn__tables[i]->backend) &&
            (usable >> attn__tables[i]->backend & 1u))
            return attn__tables[i];
    return NULL;
}

/* Returns 1 if the scalar backend runs. In a build without other backends this is a constant, and
   compilers omit code that only vector kernels need. */
ATTN__INLINE int attn__is_scalar(const attn__kernels *kernels)
{
    return ATTN__TABLES == 1 || kernels->backend == ATTN_SCALAR;
}

ATTNDEF int attn_backends(attn_backend *list, int max)
{
    int i, n = 0;
    for (i = 0; i < ATTN__TABLES; i++)
        if (attn__table(attn__tables[i]->backend)) {
            if (list && n < max) list[n] = attn__tables[i]->backend;
            n++;
        }
    return n;
}

ATTNDEF const char *attn_backend_name(attn_backend backend)
{
    return (unsigned)backend < (unsigned)ATTN__BACKENDS ? attn__backend_names[backend] : "unknown";
}

/* ---- the floating-point environment -------------------------------------------------------------
   Rounding mode and denormal flushing are per-thread settings, and hosts change them (audio
   engines, games, a caller's fesetround). So a task saves the control word, works
   under the default one and restores the saved word with its sticky exception flags: the host sees
   only its own flags. The word is written only if it differs, because writing it is slow.
   Each platform below defines how to read and write the word, which of its bits control arithmetic
   (the others are flags), and their default if it is not 0. */
#define ATTN__ASM __asm__ __volatile__
#if defined(_MSC_VER) && (defined(_M_X64) || (defined(_M_IX86_FP) && _M_IX86_FP + 0 >= 1))
#include <xmmintrin.h>
typedef unsigned attn__env;                         /* MXCSR: the flags are its low six bits */
#define ATTN__ENV_GET     e = _mm_getcsr()
#define ATTN__ENV_SET     _mm_setcsr(e)
#define ATTN__ENV_CONTROL 0xFFC0u
#define ATTN__ENV_DEFAULT 0x1F80u                   /* no traps, to nearest, no flushing */
#elif defined(__GNUC__) && (defined(__x86_64__) || (defined(__i386__) && defined(__SSE__)))
typedef unsigned attn__env;                         /* MXCSR, as above */
#define ATTN__ENV_GET     ATTN__ASM("stmxcsr %0" : "=m"(e) : : "memory")
#define ATTN__ENV_SET     ATTN__ASM("ldmxcsr %0" : : "m"(e) : "memory")
#define ATTN__ENV_CONTROL 0xFFC0u
#define ATTN__ENV_DEFAULT 0x1F80u
#elif (defined(__GNUC__) || defined(__clang__)) && defined(__aarch64__)
typedef unsigned long long attn__env;   /* low half: FPCR; high half: FPSR (the flags) */
#define ATTN__ENV_GET ATTN__ASM("mrs %0, fpcr\n\tmrs x9, fpsr\n\tbfi %0, x9, 32, 32" \
                                : "=&r"(e) : : "x9", "memory")
#define ATTN__ENV_SET ATTN__ASM("ubfx x9, %0, 0, 32\n\tmsr fpcr, x9\n\t" \
                                "lsr x9, %0, 32\n\tmsr fpsr, x9" : : "r"(e) : "x9", "memory")
#define ATTN__ENV_CONTROL 0xFFFFFFFFull
#elif defined(__GNUC__) && defined(__arm__) && defined(__ARM_FP)
typedef unsigned attn__env;                         /* FPSCR */
#define ATTN__ENV_GET     ATTN__ASM("vmrs %0, fpscr" : "=r"(e))
#define ATTN__ENV_SET     ATTN__ASM("vmsr fpscr, %0" : : "r"(e))
#define ATTN__ENV_CONTROL 0x07F79F00u               /* traps, rounding, flushing, default NaN */
#elif defined(__GNUC__) && defined(__riscv_flen)
typedef unsigned long attn__env;                    /* fcsr */
#define ATTN__ENV_GET     ATTN__ASM("frcsr %0" : "=r"(e))
#define ATTN__ENV_SET     ATTN__ASM("fscsr %0" : : "r"(e))
#define ATTN__ENV_CONTROL 0xE0u                     /* rounding */
#elif defined(__GNUC__) && defined(__s390x__)
typedef unsigned attn__env;                         /* FPC */
#define ATTN__ENV_GET     ATTN__ASM("efpc %0" : "=d"(e))
#define ATTN__ENV_SET     ATTN__ASM("sfpc %0" : : "d"(e))
#define ATTN__ENV_CONTROL 0xFC000007u               /* traps, rounding */
#elif defined(__GNUC__) && defined(__powerpc64__) && !defined(__NO_FPRS__)
typedef unsigned long long attn__env;             /* FPSCR, accessed through register 0 */
#define ATTN__ENV_GET     ATTN__ASM("mffs 0\n\tstfd 0, %0" : "=m"(e) : : "fr0")
#define ATTN__ENV_SET     ATTN__ASM("lfd 0, %0\n\tmtfsf 255, 0" : : "m"(e) : "fr0")
#define ATTN__ENV_CONTROL 0xFFu                     /* traps, not IEEE, rounding */
#else
typedef unsigned attn__env;       /* no known access: the host's settings remain */
#define ATTN__ENV_GET     ((void)0)
#define ATTN__ENV_SET     ((void)e)
#define ATTN__ENV_CONTROL 0u
#endif
#ifndef ATTN__ENV_DEFAULT
#define ATTN__ENV_DEFAULT 0u
#endif

static attn__env attn__env_get(void)
{
    attn__env e = 0;                                /* for analysers that do not parse asm */
    ATTN__ENV_GET;
    return e;
}

static void attn__env_set(attn__env e) { ATTN__ENV_SET; }

/* ---- running tasks --------------------------------------------------------------------------- */
/* Tasks for the executor. wake 0: the tasks are too short to wake a sleeping thread pool
   (attn__is_short). */
typedef struct attn__job { void (*task)(void *arg, int i); void *arg; int wake; } attn__job;

/* Runs tasks from .. to-1. Compilers do not model the control word and could move arithmetic across
   its change. The volatile pointer makes each task a real call, and code inside a call cannot move
   out of it. */
static ATTN__NOINLINE void attn__run_range(const attn__job *job, int from, int to)
{
    void (*volatile task)(void *arg, int i) = job->task;
    const attn__env before = attn__env_get();
    int i;
    if ((before & ATTN__ENV_CONTROL) != ATTN__ENV_DEFAULT) attn__env_set(ATTN__ENV_DEFAULT);
    for (i = from; i < to; i++) task(job->arg, i);
    if (attn__env_get() != before) attn__env_set(before);
}

static void attn__run_one(void *arg, int i) { attn__run_range((const attn__job *)arg, i, i + 1); }

/* Runs n tasks, on e if given, each under the default floating-point environment. */
static void attn__run(const attn_exec *e, int n, int wake, void (*task)(void *arg, int i),
                      void *arg)
{
    attn__job job = { task, arg, wake };
    if (n <= 0) return;
    if (!e || e->width <= 1 || n == 1) attn__run_range(&job, 0, n);
    else e->run(e->pool, n, attn__run_one, &job);
}

/* =================================================================================================
 * 5  CHECKING, SHAPES, STRIDES, WORKSPACE
 *
 * attn__check validates the attn_args of every call and writes nothing of the caller's, so a
 * rejected call has changed nothing. The driver trusts attn__call. The checks in their order, each
 * of which relies on those before it:
 *     options     values out of range, settings that exclude each other
 *     sizes       members of attn_args or of the cache
 *     pointers    alignment; only then are arrays read
 *     planes      the heads that have weights
 *     entries     arrays of lengths, starts and maps; the length of the longest entry
 *     places      strides and extents; overlaps of outputs
 * Pointers to floats and ints are members of one of two lists, ATTN__TENSORS and ATTN__ARRAYS:
 * their checks of alignment are generated from the list, and for arrays those of overlap.
 * ============================================================================================== */
ATTNDEF const char *attn_status_str(attn_status s)
{
    /* Indexed by the negated status. */
    static const char *const names[] = {
        "ok", "a required pointer is NULL", "a size is out of range",
        "kv_heads does not divide heads, or heads does not divide d_model",
        "a stride is negative or too small", "a length, start or offset is out of range",
        "an entry of a batch or cache, or a number in a map, is out of range",
        "a mask, keep or bias shape is neither 1 nor the full size", "an option is out of range",
        "two settings exclude each other", "an output overlaps another argument",
        "a size does not fit the address space", "the memory given is too small", "out of memory",
        "the backend is not usable on this machine", "the cache is full",
        "a pointer is not aligned to its type",
        "the bytes are not a saved entry, or not packed weights"
    };
    return s <= ATTN_OK && s >= ATTN_E_BYTES ? names[-(int)s] : "unknown status";
}

ATTNDEF int attn_version(void) { return ATTN_VERSION; }

ATTNDEF size_t attn_struct_size(const char *name)
{
#define ATTN__SIZED(type) { #type, sizeof(type) }
    static const struct { const char *name; size_t bytes; } all[] = {
        ATTN__SIZED(attn_exec), ATTN__SIZED(attn_args),
#ifndef ATTN_NO_CACHE
        ATTN__SIZED(attn_kv_args), ATTN__SIZED(attn_kv),
#endif
#ifndef ATTN_NO_LAYERS
        ATTN__SIZED(attn_linear_args), ATTN__SIZED(attn_linear), ATTN__SIZED(attn_norm_args),
        ATTN__SIZED(attn_rope_freqs_args), ATTN__SIZED(attn_rope_args), ATTN__SIZED(attn_mha_args),
        ATTN__SIZED(attn_mha), ATTN__SIZED(attn_mha_opts),
#endif
#ifndef ATTN_NO_DELTA
        ATTN__SIZED(attn_delta_args), ATTN__SIZED(attn_conv_args),
#endif
        { NULL, 0 }
    };
#undef ATTN__SIZED
    int i, j;
    for (i = 0; name && all[i].name; i++) {
        for (j = 0; name[j] && name[j] == all[i].name[j]; j++) { }
        if (name[j] == all[i].name[j]) return all[i].bytes;
    }
    return 0;
}

ATTNDEF attn_args attn_args_for(int batch, int n_q, int n_k, int heads, int head_dim)
{
    attn_args a;
    memset(&a, 0, sizeof a);
    a.batch = batch;
    a.n_q = n_q;
    a.n_k = n_k;
    a.heads = heads;
    a.head_dim = head_dim;
    return a;
}

/* ---- sentences without stdio ----------------------------------------------------------------- */
/* Appends n bytes. As with snprintf, len counts all bytes, and at most size - 1 are stored. */
static void attn__format_bytes(attn__text *t, const char *s, size_t n)
{
    if (t->print) t->print(s, n);
    if (t->size > 0) {
        const size_t from = t->len < t->size ? t->len : t->size - 1;
        const size_t room = t->size - 1 - from, copied = n < room ? n : room;
        memcpy(t->at + from, s, copied);
        t->at[from + copied] = '\0';
    }
    t->len += n;
}

static void attn__format_text(attn__text *t, const char *s) { attn__format_bytes(t, s, strlen(s)); }

/* Starts an empty, terminated text. */
static attn__text attn__text_at(char *at, size_t size)
{
    attn__text t = { at, at ? size : 0, 0, NULL };
    attn__format_text(&t, "");
    return t;
}

/* Appends a number. The magnitude is unsigned, because LLONG_MIN has no positive counterpart. */
static void attn__format_int(attn__text *t, long long n)
{
    unsigned long long left = n < 0 ? 0ull - (unsigned long long)n : (unsigned long long)n;
    char digits[24];
    size_t at = sizeof digits;
    do digits[--at] = (char)('0' + (int)(left % 10)); while ((left /= 10) > 0);
    if (n < 0) digits[--at] = '-';
    attn__format_bytes(t, digits + at, sizeof digits - at);
}

/* Appends `sentence`, in which only %s, %d and %lld have values. ATTN__PRINTF, below, makes the
   compiler compare the types of all arguments with the sentence. */
static void attn__format_list(attn__text *t, const char *sentence, va_list values)
{
    for (; *sentence; sentence++) {
        if (*sentence != '%') attn__format_bytes(t, sentence, 1);
        else if (*++sentence == 's') attn__format_text(t, va_arg(values, const char *));
        else if (*sentence == 'd') attn__format_int(t, va_arg(values, int));
        else { attn__format_int(t, va_arg(values, long long)); sentence += 2; }
    }
}

ATTN__PRINTF(2, 3)
static void attn__format(attn__text *t, const char *sentence, ...)
{
    va_list values;
    va_start(values, sentence);
    attn__format_list(t, sentence, values);
    va_end(values);
}

/* Appends x with two decimals like "%.2f", but 0 as "0" and, from 1e10 on, as "3.40e38". Integer
   arithmetic: independent of the caller's rounding mode and of the C library. */
static void attn__format_float(attn__text *t, float x)
{
    const unsigned bits = attn__bits(x), fraction = bits & 0x7fffffu;
    const int exponent = (int)(bits >> 23 & 255);
    unsigned long long n = exponent ? fraction | 0x800000u : fraction;
    int shift = (exponent ? exponent : 1) - 150, tens = 0;        /* |x| = n * 2^shift */
    const int nan = exponent == 255 && fraction, special = exponent == 255 || n == 0;
    if (bits >> 31 && n && !nan) attn__format_text(t, "-");
    if (special) { attn__format_text(t, nan ? "nan" : n ? "inf" : "0"); return; }
    n *= 100;                 /* hundredths, ties to even; 0 for tiny values */
    if (shift < 0)
        n = shift < -40 ? 0 : (n + (1ull << (-shift - 1)) - 1 + (n >> -shift & 1)) >> -shift;
    /* Doubled up to the true value, and divided by ten whenever the next doubling would
       overflow. */
    for (; shift > 0; shift--) {
        if (n >> 63) { n /= 10; tens++; }
        n *= 2;
    }
    if ((bits & 0x7fffffffu) >= 0x501502f9u)      /* 1e10: print three digits and an exponent */
        for (; n >= 1000; tens++) n = n >= 10000 ? n / 10 : (n + 5) / 10;
    attn__format(t, "%lld.%d%d", (long long)(n / 100), (int)(n / 10 % 10), (int)(n % 10));
    if (tens) attn__format(t, "e%d", tens);
}

/* Opens the `why` of a public function. Its text stays unset until an argument is rejected. */
ATTN__INLINE void attn__why_open(attn__why *why, const char *function, void *user)
{
    why->function = function;
    why->user = user;
    why->asked = 0;
    why->n = why->lengths = NULL;
    why->text.at = NULL;
}

/* Returns the name of an argument in the public function. */
ATTN__INLINE const char *attn__word(const char *own, const char *name) { return own ? own : name; }

/* Begins the sentence with the name of the function, unless it has begun. */
static void attn__format_begin(attn__why *why)
{
    if (why->text.at || why->asked) return;
    why->text = attn__text_at(why->room, sizeof why->room);
    attn__format(&why->text, "%s: ", why->function);
}

/* Appends a part of the sentence. */
ATTN__PRINTF(2, 3)
static ATTN__NOINLINE void attn__format_part(attn__why *why, const char *sentence, ...)
{
    va_list values;
    attn__format_begin(why);
    va_start(values, sentence);
    attn__format_list(&why->text, sentence, values);
    va_end(values);
}

/* Appends the last part of a sentence and calls ATTN_REFUSED. Only rejected calls get here. */
ATTN__PRINTF(3, 4)
static ATTN__NOINLINE attn_status attn__fail(attn__why *why, attn_status status,
                                             const char *sentence, ...)
{
    va_list values;
    attn__format_begin(why);
    va_start(values, sentence);
    attn__format_list(&why->text, sentence, values);
    va_end(values);
    if (!why->asked) ATTN_REFUSED(why->user, status, why->room);
    return status;
}
#ifdef __clang_analyzer__                 /* it does not follow calls with a variable list */
#define attn__fail(why, status, ...) ((void)attn__fail(why, status, __VA_ARGS__), (status))
#endif

/* ---- sizes that cannot wrap ------------------------------------------------------------------ */
/* The largest object. Differences of addresses in one object, and sums of two sizes, fit size_t. */
#define ATTN__BYTES_MAX ((size_t)-1 / (sizeof(size_t) > 4 ? 4 : 2))
/* Leaves room to round sizes up to panels and chunks in int arithmetic. */
#define ATTN__SIZE_MAX  (INT_MAX - 1023)

/* *r = a * b and a + b; return 1 on overflow. Small factors, the usual case, need no division. */
ATTN__INLINE int attn__mul(size_t a, size_t b, size_t *r)
{
    *r = a * b;
    return (a | b) >> sizeof(size_t) * CHAR_BIT / 2 && b != 0 && a > (size_t)-1 / b;
}

ATTN__INLINE int attn__add(size_t a, size_t b, size_t *r)
{
    *r = a + b;
    return *r < a;
}

/* *bytes = a * b * c * d elements; returns 1 if no object can be that large. Sizes are not
   negative. A zero is tested first, because the product of the others may then wrap harmlessly. */
static int attn__bytes(size_t *bytes, int a, int b, int c, int d, size_t cell)
{
    *bytes = 0;
    if (a == 0 || b == 0 || c == 0 || d == 0) return 0;
    return attn__mul((size_t)a, (size_t)b, bytes) || attn__mul(*bytes, (size_t)c, bytes) ||
           attn__mul(*bytes, (size_t)d, bytes) || attn__mul(*bytes, cell, bytes) ||
           *bytes > ATTN__BYTES_MAX;
}

/* ---- options --------------------------------------------------------------------------------- */
/* Floats are tested as bits: the caller's thread may flush denormals, and its exception flags must
   not change. */
ATTN__INLINE int attn__finite(float x) { return (attn__bits(x) & 0x7f800000u) != 0x7f800000u; }
/* Returns 0 for +0 and -0, the default. */
ATTN__INLINE int attn__given(float x) { return (attn__bits(x) & 0x7fffffffu) != 0; }

/* `contents` of attn__check: sizes only (attn_sdpa_workspace); a call; a call whose k and v are
   appended to kv (attn_self_step); states without queries and keys (attn_fold). */
enum { ATTN__PLANS, ATTN__CALLS, ATTN__APPENDS, ATTN__STATES };

static ATTN__NOINLINE attn_status attn__fail_option(attn__why *why, const char *name, int value,
                                                    int last)
{
    return attn__fail(why, ATTN_E_OPTION, "%s is %d but its values are 0..%d", name, value, last);
}

/* Rejects an enum value outside 0 .. last. */
ATTN__INLINE attn_status attn__check_option(attn__why *why, const char *name, int value, int last)
{
    if (value >= 0 && value <= last) return ATTN_OK;
    return attn__fail_option(why, name, value, last);
}

ATTN__INLINE attn_status attn__check_window(attn__why *why, const char *name, int keys)
{
    if (keys >= 0) return ATTN_OK;
    return attn__fail(why, ATTN_E_OPTION, "%s is %d; unlimited is 0", name, keys);
}

static attn_status attn__check_storage(attn__why *why, const char *name, attn_storage storage,
                                       int last)
{
    return attn__check_option(why, name, (int)storage, last);
}

/* Rejects a setting that `name` excludes: `set` is its name, or NULL. */
static ATTN__NOINLINE attn_status attn__check_beside(attn__why *why, const char *name,
                                                     const char *set)
{
    if (!set) return ATTN_OK;
    return attn__fail(why, ATTN_E_CONFLICT, "%s and %s are both set", name, set);
}

/* Rejects a float that is not in a range, which `range` names. */
static ATTN__NOINLINE attn_status attn__fail_float(attn__why *why, const char *name, float x,
                                                   const char *range)
{
    attn__format_part(why, "%s is ", name);
    attn__format_float(&why->text, x);
    return attn__fail(why, ATTN_E_OPTION, " but must be %s", range);
}

/* Rejects a float that is infinite, NaN or negative. */
ATTN__INLINE attn_status attn__check_amount(attn__why *why, const char *name, float x)
{
    /* Bit patterns above that of -0 are negative. */
    if (attn__finite(x) && attn__bits(x) <= 0x80000000u) return ATTN_OK;
    return attn__fail_float(why, name, x, "finite and not negative");
}

ATTN__INLINE attn_status attn__check_backend(attn__why *why, attn_backend backend)
{
    if (backend == ATTN_AUTO || attn__table(backend)) return ATTN_OK;
    return attn__fail(why, ATTN_E_BACKEND, "backend %s is not usable on this machine",
                      attn_backend_name(backend));
}

static ATTN__NOINLINE attn_status attn__fail_exec(attn__why *why, const attn_exec *exec)
{
    if (!exec->run) return attn__fail(why, ATTN_E_NULL, "exec->run is NULL");
    return attn__fail(why, ATTN_E_OPTION, "exec->width is %d but must be at least 1", exec->width);
}

ATTN__INLINE attn_status attn__check_exec(const attn_exec *exec, attn__why *why)
{
    if (!exec || (exec->run && exec->width >= 1)) return ATTN_OK;
    return attn__fail_exec(why, exec);
}

/* Return the name of a member that is set although a ragged k_cum or a cache excludes it, or
   NULL. */
static ATTN__NOINLINE const char *attn__beside_cum(const attn_args *a)
{
    return a->k_lengths ? "k_lengths" : a->k_starts ? "k_starts" : a->k_map ? "k_map" : NULL;
}

static ATTN__NOINLINE const char *attn__beside_kv(const attn_args *a)
{
    return a->k ? "k" : a->v ? "v" : a->k_cum ? "k_cum" : a->k_starts ? "k_starts"
         : a->k_stride[0] || a->k_stride[1] || a->k_stride[2] ? "k_stride"
         : a->v_stride[0] || a->v_stride[1] || a->v_stride[2] ? "v_stride" : NULL;
}

/* Checks each option, then options that exclude each other, then the backend. */
ATTN__INLINE attn_status attn__check_options(const attn_args *a, attn__why *why, int contents)
{
    ATTN__TRY(attn__check_option(why, "layout", (int)a->layout, ATTN_BHSD));
    ATTN__TRY(attn__check_option(why, "causal", (int)a->causal, ATTN_CAUSAL_TOP_LEFT));
    ATTN__TRY(attn__check_option(why, "align", (int)a->align, ATTN_ALIGN_BOTTOM_RIGHT));
    ATTN__TRY(attn__check_option(why, "weights_stage", (int)a->weights_stage, ATTN_SCORES_BIASED));
    ATTN__TRY(attn__check_option(why, "backend", (int)a->backend, ATTN__BACKENDS - 1));
    if (!attn__finite(a->scale))
        return attn__fail_float(why, "scale", a->scale, "finite");
    ATTN__TRY(attn__check_amount(why, "softcap", a->softcap));
    ATTN__TRY(attn__check_window(why, "window_left", a->window_left));
    ATTN__TRY(attn__check_window(why, "window_right", a->window_right));
    ATTN__TRY(attn__check_exec(a->exec, why));
    if (a->causal != ATTN_CAUSAL_NONE && a->align != 0)
        return attn__fail(why, ATTN_E_CONFLICT, "align is set but causal already says how rows and "
                          "keys align");
    if (a->q_cum && a->q_lengths) return attn__check_beside(why, "q_cum", "q_lengths");
    if (a->k_cum) ATTN__TRY(attn__check_beside(why, "k_cum", attn__beside_cum(a)));
    if (a->kv && contents != ATTN__APPENDS)
        ATTN__TRY(attn__check_beside(why, "kv", attn__beside_kv(a)));
    return attn__check_backend(why, a->backend);
}

/* ---- sizes ----------------------------------------------------------------------------------- */
static ATTN__NOINLINE attn_status attn__fail_size(attn__why *why, const char *name, int value,
                                                  int least)
{
    if (value < least)
        return attn__fail(why, ATTN_E_SIZE, "%s is %d but must be at least %d", name, value, least);
    return attn__fail(why, ATTN_E_OVERFLOW, "%s is %d but %d is the largest size", name, value,
                      ATTN__SIZE_MAX);
}

/* Checks that a size is at least `least`, and small enough to be rounded up. */
ATTN__INLINE attn_status attn__check_size(attn__why *why, const char *name, int value, int least)
{
    if (value >= least && value <= ATTN__SIZE_MAX) return ATTN_OK;
    return attn__fail_size(why, name, value, least);
}

typedef struct attn__size { const char *name; int value, least; } attn__size;
static attn_status attn__check_all(attn__why *why, const attn__size *size, int n)
{
    for (; n > 0; n--, size++)
        ATTN__TRY(attn__check_size(why, size->name, size->value, size->least));
    return ATTN_OK;
}

/* Checks two numbers that must be equal. there, here: " ..." after each, in the sentence. */
typedef struct attn__pair { const char *name; long long there, here; } attn__pair;
static attn_status attn__check_same(attn__why *why, const char *there, const char *here,
                                    const attn__pair *pair, int n)
{
    for (; n > 0; n--, pair++)
        if (pair->there != pair->here)
            return attn__fail(why, ATTN_E_SIZE, "%s is %lld%s but %lld%s", pair->name, pair->there,
                              there, pair->here, here);
    return ATTN_OK;
}

/* Rejects arguments about keys that contradict the cache. */
static attn_status attn__check_cache(const attn_kv_args *cache, const attn__call *call,
                                     attn__why *why)
{
    const attn__pair same[] = {
        { "kv_heads", call->kv_heads, cache->kv_heads },
        { "head_dim", call->head_dim, cache->head_dim },
        { "v_head_dim", call->v_head_dim, cache->v_head_dim },
        { "k_batch", call->k_batch, cache->batch }
    };
    return attn__check_same(why, "", " in the cache", same, 4);
}

/* Checks a table [heads][2 * extent + 1] of floats. *bytes: its size. */
static attn_status attn__check_rel(attn__why *why, const char *name, int heads, int extent,
                                   size_t *bytes)
{
    ATTN__TRY(attn__check_size(why, name, extent, 0));
    /* Sums of two distances must fit an int. */
    if (extent > ATTN__SIZE_MAX / 2)
        return attn__fail(why, ATTN_E_OVERFLOW, "%s is %d but %d is the largest", name, extent,
                          ATTN__SIZE_MAX / 2);
    if (attn__mul((size_t)heads, 2 * (size_t)extent + 1, bytes) ||
        attn__mul(*bytes, sizeof(float), bytes) || *bytes > ATTN__BYTES_MAX)
        return attn__fail(why, ATTN_E_OVERFLOW, "%s is %d: %d heads of so many numbers do not fit "
                          "the address space", name, extent, heads);
    return ATTN_OK;
}

/* Checks the sizes in *a and writes them to *call, defaults resolved, with the scale. Only
   attn__check_entries resolves n_q and n_k. */
static attn_status attn__check_sizes(const attn_args *a, attn__call *call, attn__why *why)
{
    const attn_kv_args *c = a->kv ? &a->kv->shape : NULL;
    ATTN__TRY(attn__check_size(why, "batch", a->batch, 0));
    ATTN__TRY(attn__check_size(why, attn__word(why->n, "n_q"), a->n_q, 0));
    ATTN__TRY(attn__check_size(why, attn__word(why->n, "n_k"), a->n_k, 0));
    ATTN__TRY(attn__check_size(why, "heads", a->heads, 1));
    ATTN__TRY(attn__check_size(why, "kv_heads", a->kv_heads, 0));
    ATTN__TRY(attn__check_size(why, "head_dim", a->head_dim, c ? 0 : 1));
    ATTN__TRY(attn__check_size(why, "v_head_dim", a->v_head_dim, 0));
    ATTN__TRY(attn__check_size(why, "k_batch", a->k_batch, 0));
    if (c && !attn__kv_live(a->kv))
        return attn__fail(why, ATTN_E_NULL, "kv is not a cache that attn_kv_init has made");
    call->batch = a->batch;
    call->n_q = a->n_q;
    call->n_k = a->n_k;
    call->heads = a->heads;
    call->kv_heads = a->kv_heads ? a->kv_heads : c ? c->kv_heads : a->heads;
    call->head_dim = c && !a->head_dim ? c->head_dim : a->head_dim;
    call->v_head_dim = a->v_head_dim ? a->v_head_dim : c ? c->v_head_dim : call->head_dim;
    call->k_batch = a->k_batch ? a->k_batch : c ? c->batch : a->batch;
    call->carry_bytes = 0;
    call->rel_bytes = 0;
    if (c) ATTN__TRY(attn__check_cache(c, call, why));
    call->group = call->heads / call->kv_heads;            /* consecutive heads share a K/V head */
    if (call->heads % call->kv_heads)
        return attn__fail(why, ATTN_E_HEADS, "heads is %d but kv_heads is %d; kv_heads must divide "
                          "heads", call->heads, call->kv_heads);
    if (!a->k_map && call->k_batch < call->batch)       /* entry b reads K/V entry b */
        return attn__fail(why, ATTN_E_SIZE, "batch is %d but there are only %d %s; k_map could "
                          "share them", call->batch, call->k_batch,
                          a->kv ? "entries in the cache" : "K/V entries (k_batch)");
    if ((long long)call->batch * call->heads > INT_MAX)
        return attn__fail(why, ATTN_E_OVERFLOW, "batch %d times heads %d does not fit an int",
                          call->batch, call->heads);
    call->scale = attn__given(a->scale) ? a->scale : attn__default_scale(call->head_dim);
    if (a->rel_bias)
        ATTN__TRY(attn__check_rel(why, "rel_extent", call->heads, a->rel_extent, &call->rel_bytes));
    return ATTN_OK;
}

/* ---- alignment ------------------------------------------------------------------------------- */
/* Checks one address. NULL is aligned. */
ATTN__INLINE attn_status attn__check_align(attn__why *why, const char *name, const void *at,
                                           size_t align)
{
    const size_t behind = (size_t)at % align;
    if (behind == 0) return ATTN_OK;
    return attn__fail(why, ATTN_E_ALIGN, "%s is not aligned: its address is %lld behind a multiple "
                      "of %lld", name, (long long)behind, (long long)align);
}

/* Pointers of attn_args to floats and ints: X(member, name in sentences, bytes). The checks of
   alignment and, for arrays, of overlap are generated from these lists. */
#define ATTN__TENSORS(X) \
    X(out, "out", 0) X(q, "q", 0) X(k, "k", 0) X(v, "v", 0) \
    X(weights, "weights", 0) X(lse, "lse", 0) \
    X(carry_in, "carry_in", 0) X(carry_out, "carry_out", 0)
#define ATTN__ARRAYS(X) \
    X(alibi_slopes, "alibi_slopes", heads) X(rel_bias, "rel_bias", call->rel_bytes) \
    X(sinks, "sinks", heads) \
    X(q_pos_each, "q_pos_each", ints) X(q_lengths, attn__word(why->lengths, "q_lengths"), ints) \
    X(k_lengths, attn__word(why->lengths, "k_lengths"), ints) X(k_starts, "k_starts", ints) \
    X(q_cum, "q_cum", ints + sizeof(int)) X(k_cum, "k_cum", ints + sizeof(int)) \
    X(k_map, "k_map", ints) X(weights_heads, "weights_heads", planes)
#define ATTN__ONE_ARRAY(member, name, bytes) + 1
enum { ATTN__ALL_ARRAYS = ATTN__ARRAYS(ATTN__ONE_ARRAY) };
#define ATTN__ADDRESS(member, name, bytes) | (size_t)a->member
#define ATTN__NAMED(member, name, bytes) { name, a->member },
#define ATTN__ADDRESS_OF_MASK(name, type, heads) | (size_t)a->name
#define ATTN__NAMED_MASK(name, type, heads) { #name, a->name },
#define ATTN__NOTED(member, name, bytes) \
    if (a->member) attn__span_add(all, name, a->member, bytes);

/* Names the first pointer to floats or ints that is not aligned. */
static ATTN__NOINLINE attn_status attn__check_each_pointer(const attn_args *a, attn__why *why)
{
    const struct { const char *name; const void *at; } part[] = {
        ATTN__TENSORS(ATTN__NAMED) ATTN__ADDED(ATTN__NAMED_MASK) ATTN__ARRAYS(ATTN__NAMED)
    };
    const int last = (int)(sizeof part / sizeof *part) - 1;
    int i = 0;
    while (i < last && (size_t)part[i].at % ATTN__CELL_ALIGN == 0) i++;
    return attn__check_align(why, part[i].name, part[i].at, ATTN__CELL_ALIGN);
}

/* Checks alignment, before the first array is read: of all addresses together, then of each.
   arrays: the addresses of all arrays, joined by or. */
ATTN__INLINE attn_status attn__check_pointers(const attn_args *a, size_t arrays, attn__why *why)
{
    const size_t cells = arrays ATTN__TENSORS(ATTN__ADDRESS) ATTN__ADDED(ATTN__ADDRESS_OF_MASK);
    if (cells % ATTN__CELL_ALIGN != 0) return attn__check_each_pointer(a, why);
    return attn__check_align(why, "masked_rows", a->masked_rows, ATTN__COUNT_ALIGN);
}

/* Checks the list of heads that have weights. The list is read only with `contents`. */
static attn_status attn__check_planes(const attn_args *a, int heads, attn__why *why, int contents)
{
    const int *list = a->weights_heads, n = a->n_weights_heads;
    int i;
    if (!list && n == 0) return ATTN_OK;
    if (!list)
        return attn__fail(why, ATTN_E_NULL, "weights_heads is NULL but n_weights_heads is %d", n);
    if (!a->weights)
        return attn__fail(why, ATTN_E_CONFLICT, "weights_heads is set but weights is NULL");
    if (n < 1 || n > heads)
        return attn__fail(why, ATTN_E_SIZE, "n_weights_heads is %d but must be 1..%d, the heads", n,
                          heads);
    for (i = 0; i < n && contents; i++) {
        if (list[i] < 0 || list[i] >= heads)
            return attn__fail(why, ATTN_E_OPTION, "weights_heads[%d] is %d but there are %d heads",
                              i, list[i], heads);
        if (i > 0 && list[i] <= list[i - 1])
            return attn__fail(why, ATTN_E_OPTION, "weights_heads[%d] is %d but must be above %d, "
                              "the one before it", i, list[i], list[i - 1]);
    }
    return ATTN_OK;
}

/* Returns the number of heads with weights (checked by attn__check_planes). */
ATTN__INLINE int attn__planes(const attn_args *a, int heads)
{
    return a->weights_heads ? a->n_weights_heads : heads;
}

/* ---- entries --------------------------------------------------------------------------------- */
/* Checks n_q or n_k if entries have lengths: it must not be below the longest one, and
   0 becomes the longest one. */
static attn_status attn__check_width(attn__why *why, const char *name, int longest, int *n)
{
    if (*n == 0) *n = longest;
    if (*n >= longest) return attn__check_size(why, name, *n, 0);
    return attn__fail(why, ATTN_E_SIZE, "%s is %d but the longest entry has %d", name, *n, longest);
}

/* Checks ragged offsets: not negative, not decreasing (the first need not be 0). *n: longest
   entry. */
static attn_status attn__check_cum(attn__why *why, const char *name, const int *cum, int batch,
                                   const char *width, int *n)
{
    int b, longest = 0;
    if (batch > 0 && cum[0] < 0)
        return attn__fail(why, ATTN_E_LENGTHS, "%s[0] is %d but cannot be negative", name, cum[0]);
    for (b = 0; b < batch; b++) {
        if (cum[b + 1] < cum[b])
            return attn__fail(why, ATTN_E_LENGTHS, "%s[%d] is %d but %s[%d] is %d; it cannot fall",
                              name, b, cum[b], name, b + 1, cum[b + 1]);
        if (cum[b + 1] - cum[b] > longest) longest = cum[b + 1] - cum[b];
    }
    return attn__check_width(why, width, longest, n);
}

/* Return the number of keys of a cache entry that still exist, and of the pages that hold them. */
static int attn__kv_keys(const attn_kv *c, int b)
{
    const int *gap = attn__kv_gap(c, b);
    return c->lengths[b] - (gap[1] - gap[0]);
}

static int attn__kv_pages(const attn_kv *c, int b)
{
    return (attn__kv_keys(c, b) + ATTN__CHUNK - 1) / ATTN__CHUNK;
}

/* Rejects an append of `count` keys to entry b of the cache if they do not fit. */
static attn_status attn__check_room(attn__why *why, const attn_kv *c, int b, int count)
{
    const int keys = attn__kv_keys(c, b);
    if (count > c->shape.capacity - keys)
        return attn__fail(why, ATTN_E_FULL, "entry %d of the cache holds %d of %d keys, no room "
                          "for %d more", b, keys, c->shape.capacity, count);
    if (count > ATTN__SIZE_MAX - c->lengths[b])
        return attn__fail(why, ATTN_E_OVERFLOW, "entry %d of the cache has had %d keys, and %d "
                          "more cannot be counted", b, c->lengths[b], count);
    return ATTN_OK;
}

/* Returns the number of rows of entry b: ragged, with lengths, or n for all. */
ATTN__INLINE int attn__count(const int *cum, const int *lengths, int n, int b)
{
    return cum ? cum[b + 1] - cum[b] : lengths ? lengths[b] : n;
}

/* Returns the K/V entry that entry b reads. */
ATTN__INLINE int attn__source_of(const attn__call *call, int b)
{
    return call->k_map ? call->k_map[b] : b;
}

/* Checks lengths, start and K/V entry of entry b. *end: the index after its last key. */
static attn_status attn__check_entry(const attn__call *call, int b, int *end, attn__why *why)
{
    const int source = attn__source_of(call, b), start = call->k_starts ? call->k_starts[b] : 0;
    int keys;
    /* The map comes first: it selects the entry of a cache whose length is checked below. */
    if (source < 0 || source >= call->k_batch)
        return attn__fail(why, ATTN_E_MAP, "k_map[%d] is %d but there are %d K/V entries", b,
                          source, call->k_batch);
    if (call->q_lengths && (call->q_lengths[b] < 0 || call->q_lengths[b] > call->n_q))
        return attn__fail(why, ATTN_E_LENGTHS, "%s[%d] is %d but %s is %d",
                          attn__word(why->lengths, "q_lengths"), b, call->q_lengths[b],
                          attn__word(why->n, "n_q"), call->n_q);
    /* Each entry of a cache has a length. Ragged keys have no starts or lengths. */
    keys = call->kv ? call->kv->lengths[source] : call->n_k;
    if (start < 0 || start > keys)
        return attn__fail(why, ATTN_E_LENGTHS, "k_starts[%d] is %d but n_k is %d", b, start, keys);
    *end = keys;
    if (!call->k_lengths) return ATTN_OK;
    if (call->k_lengths[b] < 0 || call->k_lengths[b] > keys - start) {
        attn__format_part(why, "%s[%d] is %d but ", attn__word(why->lengths, "k_lengths"), b,
                          call->k_lengths[b]);
        if (call->k_starts) attn__format_part(why, "k_starts[%d] is %d and ", b, start);
        if (call->kv)
            return attn__fail(why, ATTN_E_LENGTHS, "its entry of the cache has %d keys", keys);
        return attn__fail(why, ATTN_E_LENGTHS, "%s is %d", attn__word(why->n, "n_k"), keys);
    }
    *end = start + call->k_lengths[b];
    return ATTN_OK;
}

/* Returns the number of query rows of entry b. */
ATTN__INLINE int attn__rows_of(const attn__call *call, int b)
{
    return attn__count(call->q_cum, call->q_lengths, call->n_q, b);
}

/* Resolves n_q and n_k and checks every length, start, offset and map entry. Without contents it
   reads q_cum or k_cum if n_q or n_k is 0, but no other array, and takes the capacity of a cache as
   its length. */
static attn_status attn__check_entries(const attn_args *a, attn__call *call, attn__why *why,
                                       int contents)
{
    const int *q_cum = contents || !a->n_q ? a->q_cum : NULL;
    const int *k_cum = contents || !a->n_k ? a->k_cum : NULL;
    int b, longest = 0;
    if (a->kv && !contents && !a->n_k) call->n_k = a->kv->shape.capacity;
    if (q_cum) ATTN__TRY(attn__check_cum(why, "q_cum", q_cum, call->batch, "n_q", &call->n_q));
    if (k_cum) ATTN__TRY(attn__check_cum(why, "k_cum", k_cum, call->batch, "n_k", &call->n_k));
    if (!contents) return ATTN_OK;                /* the checks below read arrays */
    if (!a->q_lengths && !a->k_lengths && !a->k_starts && !a->k_map && !a->kv) return ATTN_OK;
    for (b = 0; b < call->batch; b++) {
        int end = 0;
        ATTN__TRY(attn__check_entry(call, b, &end, why));
        if (contents == ATTN__APPENDS) {
            const int rows = attn__rows_of(call, b);
            ATTN__TRY(attn__check_room(why, a->kv, b, rows));
            end += rows;
        }
        if (end > longest) longest = end;
    }
    return a->kv ? attn__check_width(why, "n_k", longest, &call->n_k) : ATTN_OK;
}

/* ---- strides and extents --------------------------------------------------------------------- */
/* q, k, v, out, or an array of ATTN__MASKS: count[0] x count[1] x count[2] runs of `width`
   elements. */
typedef struct attn__tensor {
    const char *name;
    const void *at;
    const ptrdiff_t *given;                       /* strides of the caller */
    ptrdiff_t *stride;                            /* strides with every default resolved */
    int count[3], width;
    int inner;                                    /* innermost dimension: 2 or 1; 0 is outermost */
    size_t cell;                                  /* bytes of one element */
} attn__tensor;

/* Returns 1 if two runs of bytes overlap. The lower address is subtracted from the higher, so
   nothing wraps. */
ATTN__INLINE int attn__meet(size_t x, size_t x_bytes, size_t y, size_t y_bytes)
{
    return x <= y ? y - x < x_bytes : x - y < y_bytes;
}

/* Placeholder for every contiguous tensor: all bytes of its span belong to it. */
static const attn__tensor attn__contiguous = { "", NULL, NULL, NULL, { 1, 1, 1 }, 0, 0, 1 };

/* The bytes from the first to the last of one argument. */
typedef struct attn__span {
    const char *name;
    size_t at, end;                               /* the address after the last byte */
    const attn__tensor *tensor;                   /* which bytes it uses; NULL: all of them */
} attn__span;

/* Outputs first. A layer has up to 25 arguments beside the masks and ATTN__ARRAYS, attn_sdpa
   fewer. */
typedef struct attn__spans {
    int n, outputs;
    attn__span span[25 + (int)ATTN__ALL_MASKS + (int)ATTN__ALL_ARRAYS];
} attn__spans;

/* Adds one argument. An end that wraps becomes the last address. */
ATTN__INLINE void attn__span_note(attn__spans *all, const char *name, const void *at, size_t bytes,
                                  const attn__tensor *tensor)
{
    attn__span *x = &all->span[all->n++];
    size_t end;
    ATTN_ASSERT(all->n <= (int)(sizeof all->span / sizeof all->span[0]));
    x->name = name;
    x->at = (size_t)at;
    x->end = attn__add((size_t)at, bytes, &end) ? (size_t)-1 : end;
    x->tensor = tensor;
}

/* Adds an argument that may be NULL or of any size: work_size is not validated before. */
static void attn__span_add(attn__spans *all, const char *name, const void *at, size_t bytes)
{
    if (!at || bytes == 0) return;
    attn__span_note(all, name, at, bytes, NULL);
}

/* Rejects a tensor that becomes too large for memory at dimension d. */
static attn_status attn__fail_large(attn__why *why, const attn__tensor *t, int d)
{
    return attn__fail(why, ATTN_E_OVERFLOW, "%s is too large: %s_stride[%d] is %lld, %d "
                      "times", t->name, t->name, d, (long long)t->stride[d], t->count[d]);
}

/* Rejects stride d, which is negative or below `least`. */
static attn_status attn__fail_stride(attn__why *why, const attn__tensor *t, int d, size_t least)
{
    const long long stride = (long long)t->stride[d];
    if (stride < 0)
        return attn__fail(why, ATTN_E_STRIDE, "%s_stride[%d] is %lld but cannot be negative",
                          t->name, d, stride);
    return attn__fail(why, ATTN_E_STRIDE, "%s_stride[%d] is %lld but must be 0, or at least %lld",
                      t->name, d, stride, (long long)least);
}

/* Returns how many elements fit an object. (A division by t->cell would cost as much as all the
   rest.) */
ATTN__INLINE size_t attn__cells_max(const attn__tensor *t)
{
    return t->cell == 1 ? ATTN__BYTES_MAX : ATTN__BYTES_MAX / sizeof(float);
}

/* Resolves stride d: the given one, or *inside, the elements that the inner dimensions span. */
static attn_status attn__fill_stride(attn__why *why, const attn__tensor *t, int d, size_t *inside)
{
    size_t whole;
    t->stride[d] = t->given[d] ? t->given[d] : (ptrdiff_t)*inside;
    if (t->stride[d] < 0) return attn__fail_stride(why, t, d, 0);
    if (d == 0) return ATTN_OK;                   /* 0 is outermost */
    if (attn__mul((size_t)t->stride[d], (size_t)t->count[d], &whole) || whole > attn__cells_max(t))
        return attn__fail_large(why, t, d);
    /* A default stride spans all dimensions inside it, even if one of these has a small stride. */
    if (whole > *inside) *inside = whole;
    return ATTN_OK;
}

/* Resolves the strides of a tensor. *reach 0: it has no elements. */
static attn_status attn__fill_strides(attn__why *why, const attn__tensor *t, size_t *reach)
{
    size_t inside = (size_t)t->width;
    *reach = t->count[0] && t->count[1] && t->count[2] ? inside : 0;
    ATTN__TRY(attn__fill_stride(why, t, t->inner, &inside));
    ATTN__TRY(attn__fill_stride(why, t, 3 - t->inner, &inside));
    return attn__fill_stride(why, t, 0, &inside);
}

/* Checks that stride d spans the *reach elements inside it, and updates *reach. */
static attn_status attn__check_stride(attn__why *why, const attn__tensor *t, int d, size_t *reach)
{
    size_t steps;
    if (t->count[d] < 2) return ATTN_OK;          /* the stride is never used */
    if ((size_t)t->stride[d] < *reach) return attn__fail_stride(why, t, d, *reach);
    if (attn__mul((size_t)t->stride[d], (size_t)t->count[d] - 1, &steps) ||
        attn__add(*reach, steps, reach) || *reach > attn__cells_max(t))
        return attn__fail_large(why, t, d);
    return ATTN_OK;
}

/* Swaps dimensions x and y if the stride of y is smaller. */
ATTN__INLINE void attn__order(const attn__tensor *t, int *x, int *y)
{
    const int before = *x;
    if (t->stride[*y] >= t->stride[before]) return;
    *x = *y;
    *y = before;
}

/* Checks strides. Their order is free ([row][batch][head] is common), but each must span all
   elements inside it, those of the smaller strides. *reach: elements from the first to the last. */
static attn_status attn__check_strides(attn__why *why, const attn__tensor *t, size_t *reach)
{
    int first = t->inner, second = 3 - first, third = 0;
    attn__order(t, &first, &second);
    attn__order(t, &second, &third);
    attn__order(t, &first, &second);
    *reach = (size_t)t->width;
    ATTN__TRY(attn__check_stride(why, t, first, reach));
    ATTN__TRY(attn__check_stride(why, t, second, reach));
    return attn__check_stride(why, t, third, reach);
}

/* Resolves and checks the strides of one tensor. Adds its span unless `all` is NULL. */
static ATTN__NOINLINE attn_status attn__check_tensor(attn__why *why, attn__spans *all,
                                                     const attn__tensor *t)
{
    const int cells = t->width && t->count[0] && t->count[1] && t->count[2];
    size_t reach = 0;
    if (cells || t->given[0] || t->given[1] || t->given[2])
        ATTN__TRY(attn__fill_strides(why, t, &reach));
    if (reach == 0) {                             /* no elements, so no offset can wrap */
        t->stride[0] = t->stride[1] = t->stride[2] = 0;
        return ATTN_OK;
    }
    if (all && !t->at) return attn__fail(why, ATTN_E_NULL, "%s is NULL", t->name);
    ATTN__TRY(attn__check_strides(why, t, &reach));
    if (all) attn__span_note(all, t->name, t->at, reach * t->cell, t);
    return ATTN_OK;
}

/* The product of four smaller sizes is below ATTN__BYTES_MAX. */
#define ATTN__FEW (1u << (sizeof(size_t) * CHAR_BIT / 4 - 2))

/* Resolves the strides of a tensor and adds its span. contiguous: it has elements, no stride is
   given, and no product of its sizes wraps, so there is nothing to check. Other tensors are copied
   to *own. */
ATTN__INLINE attn_status attn__check_place(attn__why *why, attn__spans *all, const attn__tensor t,
                                           int contiguous, attn__tensor *own)
{
    size_t run, row, head, entry;
    if (!contiguous) {
        *own = t;
        return attn__check_tensor(why, all, own);
    }
    run = (size_t)t.width;
    row = run * (size_t)t.count[2];
    head = run * (size_t)t.count[1];
    entry = row * (size_t)t.count[1];
    t.stride[0] = (ptrdiff_t)entry;
    t.stride[1] = (ptrdiff_t)(t.inner == 2 ? row : run);
    t.stride[2] = (ptrdiff_t)(t.inner == 2 ? run : head);
    attn__span_note(all, t.name, t.at, entry * (size_t)t.count[0] * t.cell, &attn__contiguous);
    return ATTN_OK;
}

/* ---- overlap --------------------------------------------------------------------------------- */
/* Returns how many bytes x covers in each step of `step` bytes, or 0 if x does not repeat with this
   step: a larger stride of x is then no multiple of it. */
static size_t attn__inside_step(const attn__span *x, size_t step)
{
    const attn__tensor *t = x->tensor;
    size_t stride, bytes = t == &attn__contiguous ? x->end - x->at : (size_t)t->width * t->cell;
    int d;
    for (d = 0; d < 3; d++) {
        if (t->count[d] < 2) continue;
        stride = (size_t)t->stride[d] * t->cell;
        if (stride < step) bytes += stride * (size_t)(t->count[d] - 1);
        else if (stride % step) return 0;
    }
    return bytes;
}

/* Returns 1 if two tensors with overlapping spans are columns of one buffer: modulo a stride of one
   of them, the bytes of x and of y do not overlap. q, k, v and out in one row are an example. */
static ATTN__NOINLINE int attn__columns(const attn__span *x, const attn__span *y)
{
    int i;
    if (!x->tensor || !y->tensor) return 0;
    /* Either tensor may supply the step: a single row of out has no stride, but the keys next to it
       do. */
    for (i = 0; i < 6; i++) {
        const attn__tensor *t = i < 3 ? x->tensor : y->tensor;
        size_t step, x_bytes, y_bytes, gap;
        if (t->count[i % 3] < 2) continue;
        step = (size_t)t->stride[i % 3] * t->cell;
        x_bytes = attn__inside_step(x, step);
        y_bytes = attn__inside_step(y, step);
        gap = (y->at % step + step - x->at % step) % step;
        if (x_bytes && y_bytes && gap >= x_bytes && gap + y_bytes <= step) return 1;
    }
    return 0;
}

/* Compares every output with later outputs and all inputs. Inputs may share memory. */
static attn_status attn__check_overlap(attn__why *why, const attn__spans *all)
{
    const attn__span *x = all->span, *y, *const end = x + all->n, *const inputs = x + all->outputs;
    for (; x < inputs; x++)
        for (y = x + 1; y < end; y++) {
            if (y->at >= x->end || x->at >= y->end || attn__columns(x, y)) continue;
            return attn__fail(why, ATTN_E_OVERLAP, "%s overlaps %s", x->name, y->name);
        }
    return ATTN_OK;
}

/* Sets the keys of entry b, a range of those of the K/V entry that it reads. */
static void attn__entry_keys(const attn__call *call, int b, attn__entry *e)
{
    const attn_kv *kv = call->kv;
    e->kv = attn__source_of(call, b);
    e->start = call->k_starts ? call->k_starts[b] : 0;
    e->keys = call->k_lengths ? call->k_lengths[b]
            : (kv ? kv->lengths[e->kv] : attn__count(call->k_cum, NULL, call->n_k, b)) - e->start;
    e->gap_from = kv ? attn__kv_gap(kv, e->kv)[0] : 0;
    e->gap_to = kv ? attn__kv_gap(kv, e->kv)[1] : 0;
}

/* Checks that there is a part for each chunk of the longest entry. */
static attn_status attn__check_parts(const attn__call *call, attn__why *why, int contents)
{
    int b, keys, chunks;
    for (b = 0; b < call->batch; b++) {
        attn__entry e;
        attn__entry_keys(call, b, &e);
        keys = e.keys + (contents == ATTN__APPENDS ? attn__rows_of(call, b) : 0);
        chunks = attn__chunks_there(&e, (keys + ATTN__CHUNK - 1) / ATTN__CHUNK);
        if (chunks > call->parts)
            return attn__fail(why, ATTN_E_SIZE, "parts is %d but entry %d has %d chunks of 128 "
                              "keys", call->parts, b, chunks);
    }
    return ATTN_OK;
}

/* Checks states except for overlaps, and adds the span of carry_out. Out of line, because most
   calls have no states. */
static ATTN__NOINLINE attn_status attn__check_carry(const attn_args *a, attn__call *call,
                                                    attn__why *why, attn__spans *all, int contents)
{
    const char *last = a->lse ? "lse" : a->masked_rows ? "masked_rows" : a->sinks ? "sinks"
                     : a->weights && a->weights_stage == ATTN_PROBABILITIES
                     ? "weights (probabilities)" : NULL;
    size_t bytes;
    if (a->parts < 0) return attn__check_size(why, "parts", a->parts, 0);
    if (a->parts && !a->carry_out)
        return attn__fail(why, ATTN_E_CONFLICT, "parts is %d but carry_out, for their states, is "
                          "NULL", a->parts);
    if (a->parts && a->carry_in)
        return attn__fail(why, ATTN_E_CONFLICT, "parts is %d but carry_in is set: every part "
                          "begins with nothing", a->parts);
    if (a->carry_out && last)
        return attn__fail(why, ATTN_E_CONFLICT, "carry_out and %s are both set, but %s belongs to "
                          "the call that finishes", last, last);
    if (attn__bytes(&bytes, call->batch, call->heads, call->n_q, call->v_head_dim + 4,
                    sizeof(float)))
        return attn__fail(why, ATTN_E_OVERFLOW, "%s is too large for the address space",
                          a->carry_out ? "carry_out" : "carry_in");
    call->carry_bytes = bytes;
    if (a->parts && (attn__mul(bytes, (size_t)a->parts, &bytes) || bytes > ATTN__BYTES_MAX))
        return attn__fail(why, ATTN_E_OVERFLOW, "carry_out is too large for the address space: "
                          "parts is %d", a->parts);
    attn__span_add(all, "carry_out", a->carry_out, bytes);
    return a->parts && contents ? attn__check_parts(call, why, contents) : ATTN_OK;
}

/* Adds weights, lse and masked_rows, which have no strides, and states. Out of line, because most
   calls have none of them. */
static ATTN__NOINLINE attn_status attn__add_outputs(const attn_args *a, attn__call *call,
                                                    attn__why *why, attn__spans *all, int contents)
{
    const int planes = call->planes;
    size_t bytes = 0;
    if (a->weights && attn__bytes(&bytes, call->batch, planes, call->n_q, call->n_k, sizeof(float)))
        return attn__fail(why, ATTN_E_OVERFLOW, "weights is too large for the address space");
    attn__span_add(all, "weights", a->weights, bytes);
    if (a->lse && attn__bytes(&bytes, call->batch, call->heads, call->n_q, 1, sizeof(float)))
        return attn__fail(why, ATTN_E_OVERFLOW, "lse is too large for the address space");
    attn__span_add(all, "lse", a->lse, bytes);
    if (a->carry_in || a->carry_out || a->parts)
        ATTN__TRY(attn__check_carry(a, call, why, all, contents));
    attn__span_add(all, "masked_rows", a->masked_rows, sizeof *a->masked_rows);
    return ATTN_OK;
}

/* Adds the input arrays and the memory of a cache. */
static void attn__add_arrays(const attn_args *a, const attn__call *call, const attn__why *why,
                             attn__spans *all, int contents)
{
    const size_t heads = (size_t)call->heads * sizeof(float);
    const size_t ints = (size_t)call->batch * sizeof(int);
    const size_t planes = (size_t)attn__planes(a, 0) * sizeof(int);
    if (a->kv && contents != ATTN__APPENDS)
        attn__span_add(all, "the memory of kv", a->kv->memory, a->kv->bytes);
    if (a->carry_in != a->carry_out)
        attn__span_add(all, "carry_in", a->carry_in, call->carry_bytes);
    ATTN__ARRAYS(ATTN__NOTED)
}

/* Checks the arrays of ATTN__MASKS; spans refer to their tensors. Each dimension of a shape {batch,
   heads, rows} is full or 1: shared, with stride 0. */
static attn_status attn__check_masks(const attn_args *a, attn__call *call, attn__why *why,
                                     attn__spans *all, attn__tensor *tensor)
{
    const int full[3] = { call->batch, call->heads, call->n_q }, n_q = call->n_q, n_k = call->n_k;
#define ATTN__SHAPE(name, type, heads) a->name##_shape,
#define ATTN__TENSOR(name, type, heads) \
    { #name, a->name, a->name##_stride, call->cells[ATTN__OF_##name].step, { 1, heads, n_q }, n_k, \
      2, sizeof(type) },
    const int *const shape[] = { ATTN__MASKS(ATTN__SHAPE) };
    const attn__tensor each[] = { ATTN__MASKS(ATTN__TENSOR) };
#undef ATTN__SHAPE
#undef ATTN__TENSOR
    int i, d;
    memcpy(tensor, each, sizeof each);
    for (i = 0; i < ATTN__ALL_MASKS; i++) {
        attn__tensor *t = tensor + i;
        memset(t->stride, 0, 3 * sizeof *t->stride);
        if (!t->at) continue;
        if (shape[i][0] || shape[i][1] || shape[i][2]) memcpy(t->count, shape[i], sizeof t->count);
        for (d = 0; d < 3; d++) {
            if (t->count[d] == 1 || t->count[d] == full[d]) continue;
            if (full[d] == 1)
                return attn__fail(why, ATTN_E_SHAPE, "%s_shape[%d] is %d but must be 1", t->name, d,
                                  t->count[d]);
            return attn__fail(why, ATTN_E_SHAPE, "%s_shape[%d] is %d but must be 1 or %d", t->name,
                              d, t->count[d], full[d]);
        }
        ATTN__TRY(attn__check_tensor(why, all, t));
        for (d = 0; d < 3; d++)
            if (t->count[d] == 1) t->stride[d] = 0;
    }
    return ATTN_OK;
}

/* Returns the entries or rows of a ragged tensor, which counts as one long entry. Without contents
   the number of its rows is unknown: 1. */
static int attn__ragged(const int *cum, int batch, int contents)
{
    return contents && batch > 0 ? cum[batch] : batch > 0;
}

/* Not 0 if the caller has an array of ATTN__MASKS; if the caller sets a stride of x. */
#define ATTN__IS_SET(name, type, heads) || a->name
#define ATTN__GIVEN(x) (a->x##_stride[0] | a->x##_stride[1] | a->x##_stride[2])

/* Checks strides, extents and, with contents, NULL and overlaps. A pointer to no elements is not
   checked. */
ATTN__INLINE attn_status attn__check_places(const attn_args *a, attn__call *call, attn__why *why,
                                            size_t arrays, int contents)
{
    const int q_batch = a->q_cum ? 1 : call->batch, appends = contents == ATTN__APPENDS;
    const int q_rows = a->q_cum ? attn__ragged(a->q_cum, call->batch, contents) : call->n_q;
    const int k_rows = appends ? q_rows          /* k and v have as many rows as q */
                     : a->k_cum ? attn__ragged(a->k_cum, call->batch, contents) : call->n_k;
    const int k_batch = call->batch == 0 || q_rows == 0 ? 0       /* 0: not checked */
                      : appends ? q_batch
                      : a->k_cum ? 1 : call->k_batch;
    const int outs = a->carry_out ? 0 : q_batch;  /* states are written instead of out */
    const int queries = contents == ATTN__STATES ? 0 : q_batch;
    const int has_k = !a->kv || appends, has_v = !a->kv || (appends && !a->kv->shape.v_in_k);
    const int dim = call->head_dim, v_dim = call->v_head_dim;
    const int inner = a->layout == ATTN_BHSD ? 1 : 2;
    const size_t cell = sizeof(float);
    const attn__tensor
        out = { "out", a->out, a->out_stride, call->out, { outs, q_rows, call->heads }, v_dim,
                inner, cell },
        q = { "q", a->q, a->q_stride, call->q, { queries, q_rows, call->heads }, dim, inner, cell },
        k = { "k", a->k, a->k_stride, call->k, { k_batch, k_rows, call->kv_heads }, dim, inner,
              cell },
        v = { "v", a->v, a->v_stride, call->v, { k_batch, k_rows, call->kv_heads }, v_dim, inner,
              cell };
    /* The usual case: no tensor is NULL or empty, no stride is given, and no product of sizes
       wraps. */
    const int contiguous = contents && a->out && a->q && (a->k || !has_k) && (a->v || !has_v) &&
        outs && k_batch && k_rows &&
        !(ATTN__GIVEN(out) | ATTN__GIVEN(q) | ATTN__GIVEN(k) | ATTN__GIVEN(v)) &&
        (unsigned)(q_batch | q_rows | k_batch | k_rows | call->heads | dim | v_dim) < ATTN__FEW;
    attn__tensor own[4], masks[ATTN__ALL_MASKS];
    attn__spans spans, *all = contents ? &spans : NULL;
    /* Outputs first: attn__check_overlap compares each with everything after it. */
    spans.n = 0;
    ATTN__TRY(attn__check_place(why, all, out, contiguous, &own[0]));
    if (a->weights || a->lse || a->masked_rows || a->carry_in || a->carry_out || a->parts)
        ATTN__TRY(attn__add_outputs(a, call, why, &spans, contents));
    attn__span_add(&spans, "work", a->work, a->work_size);
    if (appends) attn__span_add(&spans, "the memory of kv", a->kv->memory, a->kv->bytes);
    spans.outputs = spans.n;                      /* spans added from here on are inputs */
    ATTN__TRY(attn__check_place(why, all, q, contiguous, &own[1]));
    if (has_k) ATTN__TRY(attn__check_place(why, all, k, contiguous, &own[2]));
    if (has_v) ATTN__TRY(attn__check_place(why, all, v, contiguous, &own[3]));
    /* Without contents the width of a mask for a cache is still unknown. */
    if (!contents && a->kv && !a->n_k) return ATTN_OK;
    if (call->arrays) ATTN__TRY(attn__check_masks(a, call, why, all, masks));
    if (!contents) return ATTN_OK;
    if (arrays || a->kv || a->carry_in) attn__add_arrays(a, call, why, &spans, contents);
    return attn__check_overlap(why, &spans);
}

/* ---- attn__check ----------------------------------------------------------------------------- */
/* Copies the request of the caller, before it is checked: nothing is read through a pointer. */
static void attn__call_take(attn__call *call, const attn_args *a)
{
#define ATTN__TAKE(type, name) call->name = a->name;
    ATTN__REQUEST(ATTN__TAKE)
#undef ATTN__TAKE
#define ATTN__TAKE(name, type, heads) \
    call->cells[ATTN__OF_##name].at = a->name; \
    if (!a->name) memset(call->cells[ATTN__OF_##name].step, 0, sizeof call->cells->step);
    ATTN__MASKS(ATTN__TAKE)
#undef ATTN__TAKE
    call->q_at = a->q;
    call->k_at = a->k;
    call->v_at = a->v;
    call->out_at = a->out;
    call->ends = a->causal == ATTN_CAUSAL_BOTTOM_RIGHT || a->align == ATTN_ALIGN_BOTTOM_RIGHT;
    call->arrays = 0 ATTN__MASKS(ATTN__IS_SET);
    call->planes = attn__planes(a, a->heads);
    call->raw = a->weights_stage == ATTN_SCORES_RAW || a->weights_stage == ATTN_SCORES_CAPPED;
    /* If ragged, out has no rows of padding, but lse, weights and states have. */
    call->out_padding = !a->q_cum && !a->carry_out;
    call->padding = !a->q_cum || a->lse || a->weights || a->carry_out;
    call->kernels = attn__table(a->backend);
}

/* Validates *a before anything is written and resolves every default into *call. On an error, one
   sentence that names the member and the values goes to `why`.
   contents ATTN__PLANS, 0: checks only sizes and options, before memory exists; no tensor is
   needed. call->n_q and call->n_k are then upper bounds if they depend on the contents. */
static attn_status attn__check(const attn_args *a, attn__call *call, attn__why *why, int contents)
{
    size_t arrays;
    if (!a) return attn__fail(why, ATTN_E_NULL, "the attn_args are NULL");
    attn__call_take(call, a);
    arrays = 0 ATTN__ARRAYS(ATTN__ADDRESS);
    /* In this order: each step relies on those before it. */
    ATTN__TRY(attn__check_options(a, why, contents));
    ATTN__TRY(attn__check_sizes(a, call, why));
    if (contents) ATTN__TRY(attn__check_pointers(a, arrays, why));
    if (arrays || a->n_weights_heads)
        ATTN__TRY(attn__check_planes(a, a->heads, why, contents));
    if (arrays || a->kv) ATTN__TRY(attn__check_entries(a, call, why, contents));
    return attn__check_places(a, call, why, arrays, contents);
}

/* Rejects memory of the caller that is too small. `name` is the member with its size, `function`
   reports the size needed. */
static attn_status attn__check_memory(attn__why *why, const char *name, const char *function,
                                      const void *mem, size_t size, size_t need)
{
    if (!mem || size >= need) return ATTN_OK;
    return attn__fail(why, ATTN_E_WORK, "%s is %lld but %s asks for %lld", name, (long long)size,
                      function, (long long)need);
}

/* Rejects work memory that is too small. */
static attn_status attn__check_work(const attn__call *call, attn__why *why)
{
    if (call->bytes == (size_t)-1)
        return attn__fail(why, ATTN_E_OVERFLOW, "the workspace is too large for the address space");
    return attn__check_memory(why, "work_size", "attn_sdpa_workspace", call->work,
                              call->work_size, call->bytes);
}

#ifndef ATTN_NO_CACHE                     /* only caches and layers use these two */
/* Sets *at to memory aligned to cache lines: in the caller's mem, or in an allocation, *own, to be
   freed. `need` bytes, of which 63 are for the alignment. use: what the bytes are for. */
static attn_status attn__allocate(attn__why *why, void *mem, size_t need, const char *use,
                                  void **own, char **at)
{
    *own = NULL;
    if (!mem) mem = *own = ATTN_MALLOC(why->user, need);
    if (!mem)
        return attn__fail(why, ATTN_E_MEMORY, "ATTN_MALLOC has no %lld bytes for %s",
                          (long long)need, use);
    *at = (char *)mem + (64 - (size_t)mem % 64) % 64;
    return ATTN_OK;
}

/* Frees the memory that an object owns, if any, and zeroes the object. */
static void attn__drop(void *object, size_t size, void *user, void *own)
{
    if (own) ATTN_FREE(user, own);
    memset(object, 0, size);
}
#endif

/* Sets the rows, keys and positions of query entry b. Lengths and starts are indexed by b; k_map[b]
   is the K/V entry. Bottom-right aligns the last row with the last key, so it counts keys up to
   their end: with k_starts, positions are still those in the buffer. */
static void attn__entry_at(const attn__call *call, int b, attn__entry *e)
{
    const attn_kv *kv = call->kv;
    /* Entry b begins at row q_cum[b] of one long entry if ragged, otherwise at entry b. */
    int first = call->q_cum ? call->q_cum[b] : b, d = call->q_cum ? 1 : 0;
    attn__entry_keys(call, b, e);
    e->b = b;
    e->rows = attn__rows_of(call, b);
    e->q = call->q_at ? call->q_at + first * call->q[d] : NULL;   /* NULL + 0 is undefined in C */
    /* Without out the strides are 0, and no row is written here. */
    e->out = call->out_at ? call->out_at + first * call->out[d] : call->carry_out;

    /* With a cache, k and v are rows to be appended, which attention does not read. */
    first = call->k_cum ? call->k_cum[b] : e->kv;
    d = call->k_cum ? 1 : 0;
    e->k = call->k_at && !kv ? call->k_at + first * call->k[d] : NULL;
    e->v = call->v_at && !kv ? call->v_at + first * call->v[d] : NULL;
    e->pages = kv ? attn__kv_row(kv, e->kv) : NULL;
    e->n_pages = kv ? attn__kv_pages(kv, e->kv) : 0;

    e->pos = (long long)call->q_pos + (call->q_pos_each ? call->q_pos_each[b] : 0);
    if (call->ends) e->pos += e->start + e->keys - e->rows;
}

/* Names the first row whose window_left reaches forgotten keys, after `begin`. Rows without a
   window see the remaining keys; attention sinks rely on this. */
static void attn__format_forgotten(const attn__call *call, const char *begin, attn__why *why)
{
    int b, i, from, to;
    for (b = 0; b < call->batch && call->kv && call->window_left > 0; b++) {
        attn__entry e;
        attn__entry_at(call, b, &e);
        for (i = 0; i < e.rows && e.gap_from < e.gap_to; i++) {
            attn__visible(call, &e, i, &from, &to);
            if (from < e.gap_from) from = e.gap_from;
            if (to > e.gap_to) to = e.gap_to;
            if (from >= to) continue;
            attn__format_part(why, "%srow %d of entry %d would see keys %d..%d, which are "
                              "forgotten", begin, i, b, from, to - 1);
            return;
        }
    }
}

/* Names, after `begin`, the first entry whose rows are top-left over a longer cache, and so see
   only its first keys. Appends nothing if there is none. */
static void attn__format_top_left(const attn__call *call, const char *begin, attn__why *why)
{
    attn__entry e;
    int b, end;
    if (!call->kv || call->causal != ATTN_CAUSAL_TOP_LEFT || call->q_pos || call->q_pos_each)
        return;
    if (call->carry_in || call->carry_out) return;        /* parts are top-left */
    for (b = 0; b < call->batch; b++) {
        attn__entry_at(call, b, &e);
        end = e.start + e.keys;
        if (e.rows == 0 || end <= e.rows) continue;
        attn__format_part(why, "%scausal is top-left: keys %d..%d of entry %d are hidden from "
                          "every row (new rows of a sequence: bottom-right)", begin, e.rows,
                          end - 1, b);
        return;
    }
}

static const char *attn__way_of(const attn__call *call, int together);           /* section 8 */
static attn_status attn__call_make(attn__call *call, const attn_args *a, attn__why *why,
                                   int contents);

/* Describes in one line how a call with these (valid) arguments will run. */
static void attn__describe(const attn_args *a, const attn__call *call, attn__text *t)
{
#define ATTN__NAME_OF(name, type, heads) { a->name != NULL, #name },
    const struct { int on; const char *name; } feature[] = {
        { call->n_k == 0 && !a->carry_in && !a->carry_out, "every row is empty: zeros" },
        { a->carry_in != NULL, "goes on from states" },
        { a->carry_out && !a->parts, "writes states" },
        { a->parts > 0, "writes the states of each chunk" },
        { a->kv != NULL, "K/V from a cache" }, { a->layout == ATTN_BHSD, "BHSD" },
        { attn__given(a->softcap), "softcap" },
        { a->causal == ATTN_CAUSAL_TOP_LEFT, "causal top-left" },
        { a->causal == ATTN_CAUSAL_BOTTOM_RIGHT, "causal bottom-right" },
        { a->align == ATTN_ALIGN_BOTTOM_RIGHT, "aligned bottom-right" },
        { a->window_left > 0 || a->window_right > 0, "window" },
        { a->q_pos || a->q_pos_each, "q_pos" }, { a->q_lengths != NULL, "q_lengths" },
        { a->k_lengths != NULL, "k_lengths" }, { a->k_starts != NULL, "k_starts" },
        { a->k_map != NULL, "k_map" }, { a->q_cum != NULL, "ragged queries" },
        { a->k_cum != NULL, "ragged keys" }, ATTN__MASKS(ATTN__NAME_OF)
        { a->alibi_slopes != NULL, "alibi" }, { a->rel_bias != NULL, "rel_bias" },
        { a->sinks != NULL, "sinks" },
        { a->weights && !a->weights_heads, "writes weights" },
        { a->weights_heads != NULL, "writes weights of some heads" },
        { a->lse != NULL, "writes lse" }, { a->masked_rows != NULL, "writes masked_rows" }
    };
#undef ATTN__NAME_OF
    const char *way, *shared;
    attn_backend backend = a->backend;
    int i;
    /* The line always begins like this, because a printed line must not look like an error. */
    attn__format_text(t, "these arguments are fine");
    if (call->batch == 0 || call->n_q == 0) {
        attn__format(t, ", but %s is 0: nothing is written", call->batch == 0 ? "batch" : "n_q");
        return;
    }
    way = attn__way_of(call, 0);
    shared = attn__way_of(call, 1);
    /* The first backend is the best one, which AUTO selects. */
    if (backend == ATTN_AUTO) (void)attn_backends(&backend, 1);
    attn__format(t, ": %s", attn_backend_name(backend));
    if (backend != ATTN_SCALAR) attn__format(t, ", %s", way);
    if (backend != ATTN_SCALAR && shared != way)
        attn__format(t, " (up to %s where entries share keys)", shared);
    attn__format(t, ", %d at once, batch %d", call->tasks, call->batch);
    attn__format(t, ", heads %d, kv_heads %d, n_q %d", call->heads, call->kv_heads, call->n_q);
    attn__format(t, ", n_k %d, head_dim %d, v_head_dim %d", call->n_k, call->head_dim,
                 call->v_head_dim);
    for (i = 0; i < (int)(sizeof feature / sizeof *feature); i++)
        if (feature[i].on) attn__format(t, ", %s", feature[i].name);
    attn__format(t, a->work ? ", %lld bytes of work" : ", %lld bytes to be allocated",
                 (long long)call->bytes);
}

ATTNDEF attn_status attn_check(const attn_args *a, char *why, size_t why_size)
{
    attn__why answer;
    attn__call call;
    attn__why_open(&answer, "attn_check", NULL);
    answer.asked = 1;
    answer.text = attn__text_at(why, why_size);
    ATTN__TRY(attn__call_make(&call, a, &answer, ATTN__CALLS));
    ATTN__TRY(attn__check_work(&call, &answer));
    attn__describe(a, &call, &answer.text);
    attn__format_forgotten(&call, "; ", &answer);
    attn__format_top_left(&call, "; ", &answer);
    return ATTN_OK;
}

/* =================================================================================================
 * 6  MASKS AND BIASES
 *
 * The definitions of section 1 (MASKS) as plain loops, not optimised. Everything is checked before
 * the first element is written. attn_sdpa does not use them. There, attn__visible (section 3) makes
 * one range of keys per row from lengths, starts, causal and windows; the softmax kernel (section
 * 12, `hide_row`) hides single keys of this range by mask, bias, keep and rel_bias; and `select`
 * (section 12) leaves hidden keys out if V is not finite.
 * ============================================================================================== */

/* Checks a pointer to floats or ints. With 0 bytes it is not checked. */
static attn_status attn__check_given(attn__why *why, const char *name, const void *at, size_t bytes)
{
    if (bytes == 0) return ATTN_OK;
    if (!at) return attn__fail(why, ATTN_E_NULL, "%s is NULL", name);
    return attn__check_align(why, name, at, ATTN__CELL_ALIGN);
}

/* Rejects an output that overlaps an input. */
static attn_status attn__check_apart(attn__why *why, const char *out_name, const void *out,
                                     size_t out_bytes, const char *in_name, const void *in,
                                     size_t in_bytes)
{
    if (out_bytes == 0 || in_bytes == 0 ||
        !attn__meet((size_t)out, out_bytes, (size_t)in, in_bytes))
        return ATTN_OK;
    return attn__fail(why, ATTN_E_OVERLAP, "%s overlaps %s", out_name, in_name);
}

#ifndef ATTN_NO_LAYERS
/* An array of floats or ints. It may be NULL unless it is needed. */
typedef struct attn__array {
    const char *name;
    const void *at;
    size_t bytes;
    int needed;
} attn__array;

/* Checks arrays, and that each of the first `outputs` is apart from all after it. Arrays of 0 bytes
   are not checked. */
static attn_status attn__check_arrays(attn__why *why, const attn__array *x, int n, int outputs)
{
    int i, j;
    for (i = 0; i < n; i++)
        if (x[i].at || x[i].needed)
            ATTN__TRY(attn__check_given(why, x[i].name, x[i].at, x[i].bytes));
    for (i = 0; i < outputs; i++)
        for (j = i + 1; j < n; j++)
            if (x[i].at && x[j].at)
                ATTN__TRY(attn__check_apart(why, x[i].name, x[i].at, x[i].bytes, x[j].name, x[j].at,
                                            x[j].bytes));
    return ATTN_OK;
}
#endif

/* Checks floats or ints that are read while `out` is written. */
static attn_status attn__check_input(attn__why *why, const char *out_name, const void *out,
                                     size_t out_bytes, const char *name, const void *at,
                                     size_t bytes)
{
    ATTN__TRY(attn__check_given(why, name, at, bytes));
    return attn__check_apart(why, out_name, out, out_bytes, name, at, bytes);
}

/* Checks matrices [count][n_q][n_k] to be written at m. *bytes: their size. */
static attn_status attn__check_matrices(attn__why *why, const char *name, const float *m,
                                        const char *count_name, int count, int n_q, int n_k,
                                        size_t *bytes)
{
    const attn__size size[] = { { count_name, count, 0 }, { attn__word(why->n, "n_q"), n_q, 0 },
                                { "n_k", n_k, 0 } };
    ATTN__TRY(attn__check_all(why, size, 3));
    if (attn__bytes(bytes, count, n_q, n_k, 1, sizeof *m))
        return attn__fail(why, ATTN_E_OVERFLOW, "%s has %d x %d x %d cells, more than the address "
                          "space", name, count, n_q, n_k);
    return attn__check_given(why, name, m, *bytes);
}

/* Returns one of the two values that the builders write. */
ATTN__INLINE float attn__mask_cell(int visible) { return visible ? 0.0f : -attn__inf(); }

/* attn_mask_window and attn_mask_causal. Positions are long long: i + pos may exceed an int. */
static attn_status attn__mask_window(const char *function, float *m, int n_q, int n_k, int left,
                                     int right, int pos)
{
    attn__why why;
    size_t bytes;
    int i, j;
    attn__why_open(&why, function, NULL);
    ATTN__TRY(attn__check_matrices(&why, "m", m, "", 1, n_q, n_k, &bytes));
    ATTN__TRY(attn__check_window(&why, "left", left));
    ATTN__TRY(attn__check_window(&why, "right", right));
    for (i = 0; i < n_q; i++)
        for (j = 0; j < n_k; j++) {
            const long long ahead = j - ((long long)i + pos);     /* keys after the row's own */
            *m++ = attn__mask_cell((left == 0 || -ahead < left) && (right == 0 || ahead < right));
        }
    return ATTN_OK;
}

ATTNDEF attn_status attn_mask_window(float *m, int n_q, int n_k, int left, int right, int pos)
{
    return attn__mask_window("attn_mask_window", m, n_q, n_k, left, right, pos);
}

ATTNDEF attn_status attn_mask_causal(float *m, int n_q, int n_k, int pos)
{
    /* Nothing after the row's position. */
    return attn__mask_window("attn_mask_causal", m, n_q, n_k, 0, 1, pos);
}

/* attn_mask_cross, and attn_mask_padding, whose rows and columns are the same sequence. */
static attn_status attn__mask_ids(attn__why *why, float *m, const char *ids_name, const int *ids,
                                  int pad_id, int batch, int n_q, int n_k)
{
    int b, i, j;
    size_t bytes;
    ATTN__TRY(attn__check_matrices(why, "m", m, "batch", batch, n_q, n_k, &bytes));
    if (bytes == 0) return ATTN_OK;                       /* no id is read */
    /* One int per column of n_q floats. */
    ATTN__TRY(attn__check_input(why, "m", m, bytes, ids_name, ids, bytes / (size_t)n_q));
    /* All rows of a matrix use the same row of ids: columns are hidden, never rows. */
    for (b = 0; b < batch; b++, ids += n_k)
        for (i = 0; i < n_q; i++)
            for (j = 0; j < n_k; j++) *m++ = attn__mask_cell(ids[j] != pad_id);
    return ATTN_OK;
}

ATTNDEF attn_status attn_mask_cross(float *m, const int *source_ids, int pad_id, int batch, int n_q,
                                    int n_k)
{
    attn__why why;
    attn__why_open(&why, "attn_mask_cross", NULL);
    return attn__mask_ids(&why, m, "source_ids", source_ids, pad_id, batch, n_q, n_k);
}

ATTNDEF attn_status attn_mask_padding(float *m, const int *ids, int pad_id, int batch, int n)
{
    attn__why why;
    attn__why_open(&why, "attn_mask_padding", NULL);
    why.n = "n";
    return attn__mask_ids(&why, m, "ids", ids, pad_id, batch, n, n);
}

ATTNDEF attn_status attn_mask_lengths(float *m, const int *k_lengths, int batch, int n_q, int n_k)
{
    attn__why why;
    size_t bytes;
    int b, i, j;
    attn__why_open(&why, "attn_mask_lengths", NULL);
    ATTN__TRY(attn__check_matrices(&why, "m", m, "batch", batch, n_q, n_k, &bytes));
    if (bytes == 0) return ATTN_OK;
    ATTN__TRY(attn__check_input(&why, "m", m, bytes, "k_lengths", k_lengths,
                                (size_t)batch * sizeof *k_lengths));
    /* All lengths are checked before the first element is written. */
    for (b = 0; b < batch; b++)
        if (k_lengths[b] < 0 || k_lengths[b] > n_k)
            return attn__fail(&why, ATTN_E_LENGTHS, "k_lengths[%d] is %d but n_k is %d", b,
                              k_lengths[b], n_k);
    for (b = 0; b < batch; b++)
        for (i = 0; i < n_q; i++)
            for (j = 0; j < n_k; j++) *m++ = attn__mask_cell(j < k_lengths[b]);
    return ATTN_OK;
}

ATTNDEF attn_status attn_mask_keep(float *m, const unsigned char *keep, size_t cells)
{
    attn__why why;
    size_t c;
    attn__why_open(&why, "attn_mask_keep", NULL);
    if (cells > ATTN__BYTES_MAX / sizeof *m)
        return attn__fail(&why, ATTN_E_OVERFLOW, "cells is more than the address space");
    ATTN__TRY(attn__check_given(&why, "m", m, cells * sizeof *m));
    /* Bytes need no alignment, so attn__check_given does not fit. */
    if (!keep && cells > 0) return attn__fail(&why, ATTN_E_NULL, "keep is NULL");
    ATTN__TRY(attn__check_apart(&why, "m", m, cells * sizeof *m, "keep", keep, cells));
    for (c = 0; c < cells; c++) m[c] = attn__mask_cell(keep[c] != 0);
    return ATTN_OK;
}

/* Merges masks, entry by entry. */
typedef struct attn__mask_merge {
    float *m;
    const float *by;
    size_t cells;                                         /* elements of one entry */
    int by_batch;
} attn__mask_merge;

/* Merges one entry. A task, because attn__run sets the default rounding mode. */
static void attn__merge_task(void *arg, int b)
{
    const attn__mask_merge *job = (const attn__mask_merge *)arg;
    const float hidden = attn__mask_cell(0);
    const float *by = job->by + (job->by_batch > 1 ? (size_t)b * job->cells : 0);
    float *m = job->m + (size_t)b * job->cells;
    size_t c;
    /* A hidden element stays hidden whatever is added: -inf + inf would be NaN. */
    for (c = 0; c < job->cells; c++)
        m[c] = m[c] == hidden || by[c] == hidden ? hidden : attn__clean(m[c] + by[c]);
}

ATTNDEF attn_status attn_mask_merge(float *m, int batch, const float *by, int by_batch, int n_q,
                                    int n_k)
{
    attn__mask_merge job = { m, by, 0, by_batch };
    attn__why why;
    size_t bytes;
    attn__why_open(&why, "attn_mask_merge", NULL);
    ATTN__TRY(attn__check_matrices(&why, "m", m, "batch", batch, n_q, n_k, &bytes));
    if (by_batch != 1 && by_batch != batch)
        return attn__fail(&why, ATTN_E_SHAPE, "by_batch is %d but must be 1 or batch, %d", by_batch,
                          batch);
    if (bytes == 0) return ATTN_OK;
    job.cells = bytes / (size_t)batch / sizeof *m;        /* not empty, so batch is not 0 */
    ATTN__TRY(attn__check_input(&why, "m", m, bytes, "by", by,
                                (size_t)by_batch * job.cells * sizeof *by));
    attn__run(NULL, batch, 0, attn__merge_task, &job);
    return ATTN_OK;
}

ATTNDEF attn_status attn_lengths(int *lengths, const int *ids, int pad_id, int batch, int n)
{
    const attn__size size[] = { { "batch", batch, 0 }, { "n", n, 0 } };
    attn__why why;
    size_t bytes, ints;
    int b, j;
    attn__why_open(&why, "attn_lengths", NULL);
    ATTN__TRY(attn__check_all(&why, size, 2));
    ints = (size_t)batch * sizeof *lengths;
    if (attn__bytes(&bytes, batch, n, 1, 1, sizeof *ids))
        return attn__fail(&why, ATTN_E_OVERFLOW, "ids are %d x %d, more than the address space",
                          batch, n);
    ATTN__TRY(attn__check_given(&why, "lengths", lengths, ints));
    ATTN__TRY(attn__check_input(&why, "lengths", lengths, ints, "ids", ids, bytes));
    /* All ids are checked before the first length is written. A token after a pad would be lost. */
    for (b = 0; b < batch; b++)
        for (j = 1; j < n; j++) {
            const int *id = ids + (ptrdiff_t)b * n + j;
            if (id[-1] == pad_id && id[0] != pad_id)
                return attn__fail(&why, ATTN_E_LENGTHS, "ids[%d][%d] is a token behind a pad; no "
                                  "length says that, attn_mask_padding does", b, j);
        }
    /* Only pads follow the first pad, so its index is the length. */
    for (b = 0; b < batch; b++) {
        for (j = 0; j < n && ids[(ptrdiff_t)b * n + j] != pad_id; ) j++;
        lengths[b] = j;
    }
    return ATTN_OK;
}

/* ---- T5's relative positions ----------------------------------------------------------------- */
/* One direction has B buckets: the first E = B/2 hold one distance each, the others divide the
 * distances up to D evenly on a logarithmic scale. By definition a distance n >= E falls into
 *     bucket E + floor(log(n/E) / log(D/E) * (B - E)),  at most B - 1.
 * It reaches bucket E + t when (n/E)^(B-E) >= (D/E)^t or, in integers,
 *     n^(B-E)  >=  D^t * E^(B-E-t).
 * Comparing the integers gives exact boundaries. Rounded logarithms cannot, at any precision,
 * because both sides may be equal (T5: at 16, 32 and 64). The models' own code computes logarithms
 * in float. Its quotients are exact in these cases, and no other quotient of T5 (32 buckets, 128)
 * or WavLM (320, 800) is within rounding of an integer, so its buckets are the same. */
enum { ATTN__T5_BUCKETS = 256,                    /* per direction; T5 has 16 or 32, WavLM 160 */
       ATTN__T5_WORDS = ATTN__T5_BUCKETS / 2 * 31 / 32 + 1 };   /* words of D^(B-E), D < 2^31 */

/* A positive integer, 32 bits per word, lowest word first, no leading zeros. */
typedef struct attn__big { int n; unsigned word[ATTN__T5_WORDS]; } attn__big;

/* x *= by^times */
static void attn__big_mul(attn__big *x, int by, int times)
{
    while (times-- > 0) {
        unsigned long long carry = 0;
        int i;
        for (i = 0; i < x->n; i++) {
            carry += (unsigned long long)x->word[i] * (unsigned)by;
            x->word[i] = (unsigned)(carry & 0xffffffffu);
            carry >>= 32;
        }
        if (carry) x->word[x->n++] = (unsigned)carry;
    }
}

/* Without leading zeros the longer number is larger. */
static int attn__big_less(const attn__big *x, const attn__big *y)
{
    int i = x->n - 1;
    if (x->n != y->n) return x->n < y->n;
    while (i > 0 && x->word[i] == y->word[i]) i--;
    return x->word[i] < y->word[i];
}

/* Sets first[c] to the smallest distance that falls into bucket c or a later one, for c < buckets.
   Requires max > buckets / 2. */
static void attn__t5_boundaries(int *first, int buckets, int max)
{
    const int exact = buckets / 2, steps = buckets - exact;
    int c, t;
    for (c = 0; c <= exact; c++) first[c] = c;            /* one bucket per distance */
    /* Boundaries never decrease, so each search starts at the one before. */
    for (t = 1; t < steps; t++) {
        int low = first[exact + t - 1], high = max;       /* search range; max reaches every t */
        attn__big goal = { 1, { 1 } };
        attn__big_mul(&goal, max, t);
        attn__big_mul(&goal, exact, steps - t);
        while (low < high) {              /* the smallest distance whose power reaches goal */
            const int middle = low + (high - low) / 2;
            attn__big power = { 1, { 1 } };
            attn__big_mul(&power, middle, steps);
            if (attn__big_less(&power, &goal)) low = middle + 1;
            else high = middle;
        }
        first[exact + t] = low;
    }
}

/* Writes the 2 * extent + 1 numbers of one head; the table has `stride` floats from bucket to
   bucket. Keys before the row and keys after it have the same boundaries. */
static void attn__write_t5(float *rel_bias, const float *table, int stride, const int *first,
                           int side, int one_way, int extent)
{
    float *middle = rel_bias + extent;    /* distance 0 */
    int d, bucket = 0;
    for (d = 0; d <= extent; d++) {
        while (bucket + 1 < side && d >= first[bucket + 1]) bucket++;
        middle[d] = table[one_way ? 0 : (ptrdiff_t)(side + bucket) * stride];
        middle[-d] = table[(ptrdiff_t)bucket * stride];
    }
}

ATTNDEF attn_status attn_bias_t5(float *rel_bias, const float *table, int buckets,
                                 int max_distance, int one_way, int heads, int extent)
{
    /* Without one_way each direction has half of the buckets: `side`. */
    const int ways = one_way ? 1 : 2, side = buckets / ways;
    int first[ATTN__T5_BUCKETS], h;                       /* 1 KB of stack */
    attn__why why;
    size_t bytes;
    attn__why_open(&why, "attn_bias_t5", NULL);
    ATTN__TRY(attn__check_size(&why, "heads", heads, 1));
    ATTN__TRY(attn__check_rel(&why, "extent", heads, extent, &bytes));
    ATTN__TRY(attn__check_option(&why, "one_way", one_way, 1));
    if (side < 2 || side > ATTN__T5_BUCKETS)
        return attn__fail(&why, ATTN_E_SIZE, "buckets is %d but must be %d..%lld", buckets,
                          2 * ways, (long long)ATTN__T5_BUCKETS * ways + ways - 1);
    if (max_distance <= side / 2)
        return attn__fail(&why, ATTN_E_SIZE, "max_distance is %d but must be larger than %d, the "
                          "distances with a bucket of their own", max_distance, side / 2);
    ATTN__TRY(attn__check_given(&why, "rel_bias", rel_bias, bytes));
    /* The table is [buckets][heads], as in checkpoints. */
    ATTN__TRY(attn__check_input(&why, "rel_bias", rel_bias, bytes, "table", table,
                                (size_t)buckets * (size_t)heads * sizeof *table));
    /* Boundaries are the same for all heads; only the column of the table differs. */
    attn__t5_boundaries(first, side, max_distance);
    for (h = 0; h < heads; h++, rel_bias += 2 * (ptrdiff_t)extent + 1)
        attn__write_t5(rel_bias, table + h, heads, first, side, one_way, extent);
    return ATTN_OK;
}

ATTNDEF attn_status attn_bias_shift(float *bias, const float *scores, int columns, int zero,
                                    int matrices, int n_q, int n_k, int pos)
{
    attn__why why;
    size_t bytes, from_bytes, r, rows;
    int j;
    attn__why_open(&why, "attn_bias_shift", NULL);
    ATTN__TRY(attn__check_matrices(&why, "bias", bias, "matrices", matrices, n_q, n_k, &bytes));
    ATTN__TRY(attn__check_size(&why, "columns", columns, 1));
    if (zero < 0 || zero >= columns)
        return attn__fail(&why, ATTN_E_SIZE, "zero is %d but columns is %d", zero, columns);
    if (attn__bytes(&from_bytes, matrices, n_q, columns, 1, sizeof *scores))
        return attn__fail(&why, ATTN_E_OVERFLOW, "matrices %d, n_q %d and columns %d do not fit "
                          "the address space", matrices, n_q, columns);
    if (bytes == 0) return ATTN_OK;
    ATTN__TRY(attn__check_input(&why, "bias", bias, bytes, "scores", scores, from_bytes));
    rows = (size_t)matrices * (size_t)n_q;
    for (r = 0; r < rows; r++, scores += columns)
        for (j = 0; j < n_k; j++) {
            const long long at = (long long)zero + j - (long long)(r % (size_t)n_q) - pos;
            *bias++ = at >= 0 && at < columns ? scores[at] : -attn__inf();
        }
    return ATTN_OK;
}

/* ---- pictures -------------------------------------------------------------------------------- */
/* Returns `width`, or the columns of a UTF-8 name if it has more: its bytes that are not
   continuation bytes. */
static size_t attn__wider(size_t width, const char *name)
{
    size_t n = 0;
    for (; name && *name; name++) n += ((unsigned char)*name & 0xc0) != 0x80;
    return n > width ? n : width;
}

/* Appends one element or name, padded with blanks to `width` columns. */
static void attn__draw(attn__text *t, const char *name, size_t width, int right)
{
    size_t blanks = width - attn__wider(0, name);
    for (; right && blanks > 0; blanks--) attn__format_text(t, " ");
    /* A token such as "\n" must not break the line. */
    for (; name && *name; name++) attn__format_bytes(t, (unsigned char)*name < 32 ? "?" : name, 1);
    for (; blanks > 0; blanks--) attn__format_text(t, " ");
}

/* Formats one element. */
static const char *attn__cell_text(char text[32], float x)
{
    attn__text cell = attn__text_at(text, 32);
    attn__format_float(&cell, x);
    return text;
}

/* Elements are as wide as the widest one, and columns as their names, so no widths are stored. */
static void attn__picture(attn__text *t, const float *m, int n_q, int n_k,
                          const char *const *row_names, const char *const *col_names)
{
    const size_t columns = (size_t)(n_k > 0 ? n_k : 0);
    const size_t cells = columns * (size_t)(n_q > 0 ? n_q : 0);
    size_t label = 0, widest = 0, c;
    char text[32];
    int i, j;
    if (!m || cells == 0) return;
    for (i = 0; row_names && i < n_q; i++) label = attn__wider(label, row_names[i]);
    for (c = 0; c < cells; c++) widest = attn__wider(widest, attn__cell_text(text, m[c]));
    for (i = col_names ? -1 : 0; i < n_q; i++) {          /* row -1: the names of the columns */
        if (row_names) attn__draw(t, i < 0 ? "" : row_names[i], label, 0);
        for (j = 0; j < n_k; j++) {
            const char *name = col_names ? col_names[j] : NULL;
            if (j > 0 || row_names) attn__format_text(t, " ");
            attn__draw(t, i < 0 ? name : attn__cell_text(text, *m++), attn__wider(widest, name), 1);
        }
        attn__format_text(t, "\n");
    }
}

ATTNDEF size_t attn_mask_format(char *text, size_t size, const float *m, int n_q, int n_k,
                                const char *const *row_names, const char *const *col_names)
{
    attn__text t = attn__text_at(text, size);
    attn__picture(&t, m, n_q, n_k, row_names, col_names);
    return t.len;
}

#ifndef ATTN_NO_STDIO
static void attn__to_stdout(const char *s, size_t n) { (void)fwrite(s, 1, n, stdout); }

ATTNDEF void attn_mask_print(const float *m, int n_q, int n_k, const char *const *row_names,
                             const char *const *col_names)
{
    attn__text t = attn__text_at(NULL, 0);
    t.print = attn__to_stdout;
    attn__picture(&t, m, n_q, n_k, row_names, col_names);
}
#endif

#ifndef ATTN_NO_CACHE                     /* to the end of this section */
/* =================================================================================================
 * 7  K/V CACHE
 *
 * Section 2 defines the memory of a page (attn__kv_page and below). Every entry has a row of the
 * table: its pages in key order. Only an entry that holds a page alone writes to it; an entry that
 * shares the page copies it first. Memory after the keys of an entry changes no result (of scales,
 * whole panels are read), so removing keys, forgetting and sharing only change numbers.
 * ============================================================================================== */

static attn_status attn__check_kv(attn__why *why, const attn_kv *c)
{
    if (!c) return attn__fail(why, ATTN_E_NULL, "c is NULL");
    if (!attn__kv_live(c))
        return attn__fail(why, ATTN_E_NULL, "c is not a cache that attn_kv_init has made");
    return ATTN_OK;
}

static attn_status attn__check_count(attn__why *why, attn_status status, const char *name,
                                     long long n)
{
    if (n >= 0) return ATTN_OK;
    return attn__fail(why, status, "%s is %lld but cannot be negative", name, n);
}

/* Rejects inputs in the memory of the cache that the call writes. */
static attn_status attn__check_kv_apart(attn__why *why, const attn_kv *c, const char *name,
                                        const void *at, size_t bytes)
{
    return attn__check_apart(why, "the memory of c", c->memory, c->bytes, name, at, bytes);
}

static attn_status attn__check_kv_entry(attn__why *why, const attn_kv *c, const char *name,
                                        int entry)
{
    if (entry >= 0 && entry < c->shape.batch) return ATTN_OK;
    return attn__fail(why, ATTN_E_MAP, "%s is %d but must be 0..%d", name, entry,
                      c->shape.batch - 1);
}

/* Checks cache and entry at the start of a function. Functions for all entries pass the first. */
static attn_status attn__kv_open(attn__why *why, const char *function, const attn_kv *c, int entry)
{
    attn__why_open(why, function, c ? c->shape.user : NULL);
    ATTN__TRY(attn__check_kv(why, c));
    return attn__check_kv_entry(why, c, "entry", entry);
}

/* As attn__kv_open; entry -1 selects all entries. Sets *first and *last. */
static attn_status attn__check_kv_entries(attn__why *why, const attn_kv *c, int entry, int *first,
                                          int *last)
{
    *first = entry < 0 ? 0 : entry;
    *last = entry < 0 ? c->shape.batch - 1 : entry;
    if (entry >= -1 && entry < c->shape.batch) return ATTN_OK;
    return attn__fail(why, ATTN_E_MAP, "entry is %d but must be 0..%d, or -1 for all", entry,
                      c->shape.batch - 1);
}

/* ---- sizes and memory ------------------------------------------------------------------------ */

/* Returns the size of a row of n values in values, with its scale. It fits an int. */
static int attn__row_cells(size_t n, attn_storage storage)
{
    return (int)(n + attn__formats[storage].scale / attn__cell(storage));
}

/* Sets the sizes of a cache of this shape, up to c->bytes; leaves the other members. */
static attn_status attn__kv_measure(attn__why *why, const attn_kv_args *a, attn_kv *c)
{
    attn_kv_args *s = &c->shape;
    const attn__size size[] = {
        { "batch", a->batch, 1 }, { "kv_heads", a->kv_heads, 1 }, { "head_dim", a->head_dim, 1 },
        { "v_head_dim", a->v_head_dim, 0 }, { "capacity", a->capacity, 1 }, { "pages", a->pages, 0 }
    };
    size_t v = 0, rows, ints, lists;
    int large;
    ATTN__TRY(attn__check_all(why, size, 6));
    ATTN__TRY(attn__check_option(why, "v_in_k", a->v_in_k, 1));
    ATTN__TRY(attn__check_storage(why, "k_storage", a->k_storage, ATTN__FORMATS));
    ATTN__TRY(attn__check_storage(why, "v_storage", a->v_storage, ATTN__FORMATS));
    *s = *a;
    if (!s->v_head_dim) s->v_head_dim = s->head_dim;
    if (s->v_in_k && s->v_head_dim > s->head_dim)
        return attn__fail(why, ATTN_E_SIZE, "v_head_dim is %d but head_dim is %d: with v_in_k it "
                          "cannot be more", s->v_head_dim, s->head_dim);
    if (s->v_in_k && s->k_storage != s->v_storage)
        return attn__fail(why, ATTN_E_CONFLICT, "v_storage is %d but k_storage is %d: with v_in_k "
                          "they are the same", (int)s->v_storage, (int)s->k_storage);
    if (s->k_storage == ATTN_Q8 && s->head_dim > ATTN__Q8_WIDEST)
        return attn__fail(why, ATTN_E_SIZE, "head_dim is %d but keys in 8 bits (k_storage %d) have "
                          "at most %d", s->head_dim, ATTN_Q8, ATTN__Q8_WIDEST);
    c->v_row = attn__kv_v_width(s) * attn__cell(s->v_storage);
    c->k_row = s->v_in_k ? c->v_row
             : attn__padded(s->head_dim, s->k_storage) * attn__cell(s->k_storage);
    c->page_keys = (int)attn__up((size_t)attn__min(s->capacity, ATTN__CHUNK), ATTN__PANEL);
    c->entry_pages = (s->capacity - 1) / ATTN__CHUNK + 1;
    /* batch * kv_heads: tasks of an append; batch * entry_pages: length of the table. */
    large = s->batch > INT_MAX / s->kv_heads || s->batch > INT_MAX / 2 / c->entry_pages;
    if (!large && !s->pages) s->pages = s->batch * c->entry_pages;
    /* K and V of a page are each at most half of the largest size, so their sum cannot wrap. Then
       lengths, gaps and table, each twice (for attn_kv_reorder), and two lists of pages. */
    if (large || attn__bytes(&c->page_v, s->v_in_k ? 0 : attn__row_cells(
                                 attn__padded(s->head_dim, s->k_storage), s->k_storage),
                             c->page_keys, s->kv_heads, 1, attn__cell(s->k_storage)) ||
        attn__bytes(&v, attn__row_cells(attn__kv_v_width(s), s->v_storage), c->page_keys,
                    s->kv_heads, 1, attn__cell(s->v_storage)) ||
        attn__mul(c->page_v + v, (size_t)s->pages, &c->bytes) ||
        attn__mul((size_t)s->batch, 2 * ((size_t)c->entry_pages + 3), &ints) ||
        attn__mul((size_t)s->pages, 2, &lists) || attn__add(ints, lists, &ints) ||
        attn__mul(ints, sizeof(int), &ints) || attn__add(c->bytes, ints, &c->bytes) ||
        c->bytes > ATTN__BYTES_MAX - 63) {
        return attn__fail(why, ATTN_E_OVERFLOW, "batch %d x kv_heads %d x capacity %d, head_dim %d "
                          "and v_head_dim %d, are more than the address space", s->batch,
                          s->kv_heads, s->capacity, s->head_dim, s->v_head_dim);
    }
    c->page_size = c->page_v + v;
    rows = (size_t)c->page_keys * (size_t)s->kv_heads;
    c->k_scales = attn__formats[s->k_storage].scale ? rows * c->k_row : 0;
    c->v_scales = attn__formats[s->v_storage].scale ? c->page_v + rows * c->v_row : 0;
    return ATTN_OK;
}

ATTNDEF size_t attn_kv_size(const attn_kv_args *a)
{
    attn__why why;
    attn_kv c;
    attn__why_open(&why, "attn_kv_size", a ? a->user : NULL);
    if (!a) (void)attn__fail(&why, ATTN_E_NULL, "the attn_kv_args are NULL");
    else if (attn__kv_measure(&why, a, &c) == ATTN_OK) return c.bytes + 63;   /* aligns pages */
    return (size_t)-1;
}

/* Initialises an empty cache in the memory at `at`. Pages are not written. */
static void attn__kv_make(attn_kv *c, char *at)
{
    const attn_kv_args *s = &c->shape;
    const ptrdiff_t batch = s->batch, table = batch * c->entry_pages;
    int p;
    c->memory = (float *)(void *)at;
    c->lengths = (int *)attn__page_at(c, s->pages, 0);
    c->gaps = c->lengths + batch;
    c->table = c->gaps + 2 * batch;
    c->scratch = c->table + table;
    c->holders = c->scratch + 3 * batch + table;
    c->idle = c->holders + s->pages;
    memset(c->lengths, 0, (size_t)batch * 3 * sizeof(int));
    memset(c->holders, 0, (size_t)s->pages * sizeof(int));
    /* Taken from the end of the list, so pages are used in address order. */
    for (p = 0; p < s->pages; p++) c->idle[p] = s->pages - 1 - p;
    c->free_pages = s->pages;
}

ATTNDEF attn_status attn_kv_init(attn_kv *c, const attn_kv_args *a)
{
    attn__why why;
    attn_kv made;
    attn_status status;
    char *at = NULL;                      /* gcc does not see that attn__allocate sets it */
    attn__why_open(&why, "attn_kv_init", a ? a->user : NULL);
    if (!c) return attn__fail(&why, ATTN_E_NULL, "c is NULL");
    memset(&made, 0, sizeof made);
    if (!a) status = attn__fail(&why, ATTN_E_NULL, "the attn_kv_args are NULL");
    else status = attn__kv_measure(&why, a, &made);  /* a may be &c->shape: c is zeroed later */
    memset(c, 0, sizeof *c);              /* after an error, calls reject c, and free is allowed */
    ATTN__TRY(status);
    ATTN__TRY(attn__check_memory(&why, "mem_size", "attn_kv_size", made.shape.mem,
                                 made.shape.mem_size, made.bytes + 63));
    ATTN__TRY(attn__allocate(&why, made.shape.mem, made.bytes + 63, "the cache", &made.own, &at));
    attn__kv_make(&made, at);
    *c = made;
#ifdef ATTN_DEBUG
    if (made.shape.k_storage && !made.shape.v_storage)
        ATTN__DEBUG_PRINT("attn_kv_init: k_storage is set but v_storage is 0: values stay float");
#endif
    return ATTN_OK;
}

ATTNDEF void attn_kv_free(attn_kv *c) { if (c) attn__drop(c, sizeof *c, c->shape.user, c->own); }

/* ---- pages: take, drop, own ------------------------------------------------------------------ */

/* Takes an idle page, for one holder. The caller has checked that there is one. */
static int attn__page_take(attn_kv *c)
{
    const int page = c->idle[--c->free_pages];
    c->holders[page] = 1;
    return page;
}

static void attn__page_drop(attn_kv *c, int page)
{
    if (--c->holders[page] == 0) c->idle[c->free_pages++] = page;
}

/* Copy-on-write: if other entries share the page, copies its `keys` keys to a page for this
   entry. */
static void attn__page_own(attn_kv *c, int *page, int keys)
{
    const int shared = *page;
    size_t k, v, lanes = attn__up((size_t)keys, ATTN__PANEL);
    int head, of_v;
    if (c->holders[shared] == 1) return;
    k = c->shape.v_in_k ? 0 : lanes * c->k_row;
    v = (size_t)keys * c->v_row;
    *page = attn__page_take(c);
    for (head = 0; head < c->shape.kv_heads; head++) {
        memcpy(attn__page_k(c, *page, head), attn__page_k(c, shared, head), k);   /* whole panels */
        memcpy(attn__page_value(c, *page, head, 0), attn__page_value(c, shared, head, 0), v);
        for (of_v = 0; of_v < 2; of_v++) {
            float *to = attn__page_scale(c, *page, head, 0, of_v);
            if (to)
                memcpy(to, attn__page_scale(c, shared, head, 0, of_v), lanes * sizeof *to);
        }
    }
    attn__page_drop(c, shared);
}

/* Takes pages for `count` more keys of entry b, and makes its last page unshared. */
static void attn__kv_grow(attn_kv *c, int b, int count)
{
    const int keys = attn__kv_keys(c, b);
    int *row = attn__kv_row(c, b), held = attn__kv_pages(c, b);
    if (count == 0) return;
    if (keys % ATTN__CHUNK) attn__page_own(c, row + held - 1, keys % ATTN__CHUNK);
    for (; held * (long long)ATTN__CHUNK < keys + (long long)count; held++)
        row[held] = attn__page_take(c);
}

/* ---- append ---------------------------------------------------------------------------------- */
/* New rows for entries first .. last of a cache. */
typedef struct attn__kv_rows {
    attn_kv *to;
    int first, last;
    const float *k, *v;                   /* row 0, head 0 of entry `first`; v_in_k: v is k */
    int n;                                /* rows per entry; the strides rely on it */
    const int *counts, *cum;              /* or NULL: entry b has only counts[b] rows, or has */
                                          /* rows cum[b] .. cum[b+1] - 1 of one long entry */
    ptrdiff_t k_stride[3], v_stride[3];   /* {entry, row, head} in floats */
} attn__kv_rows;

/* Returns the rows of attn_kv_append and of layers: heads are adjacent, entries are n rows apart.
   row_stride 0: rows are adjacent. */
static attn__kv_rows attn__kv_rows_of(attn_kv *to, const float *k, const float *v, int n,
                                      const int *counts, const int *cum, ptrdiff_t row_stride)
{
    attn__kv_rows rows = {
        to, 0, to->shape.batch - 1, k, to->shape.v_in_k ? k : v, n, counts, cum, { 0 }, { 0 }
    };
    rows.k_stride[2] = to->shape.head_dim;
    rows.v_stride[2] = to->shape.v_in_k ? to->shape.head_dim : to->shape.v_head_dim;
    rows.k_stride[1] = row_stride ? row_stride : to->shape.kv_heads * rows.k_stride[2];
    rows.v_stride[1] = row_stride ? row_stride : to->shape.kv_heads * rows.v_stride[2];
    /* Unsigned, so it may wrap: attn__check_kv_rows rejects such sizes later. */
    rows.k_stride[0] = (ptrdiff_t)((size_t)n * (size_t)rows.k_stride[1]);
    rows.v_stride[0] = (ptrdiff_t)((size_t)n * (size_t)rows.v_stride[1]);
    return rows;
}

/* Returns the number of new rows of entry b. */
static int attn__kv_count(const attn__kv_rows *rows, int b)
{
    return attn__count(rows->cum, rows->counts, rows->n, b);
}

/* Writes the n values of a key into a lane: from a row (step 1), or from another lane (step
   ATTN__PANEL), whose first value is at `from`. */
ATTN__INLINE void attn__write_lane(void *panel, int lane, const void *from, ptrdiff_t step, int n,
                                   attn_storage storage)
{
    const ptrdiff_t together = attn__formats[storage].together;
    const ptrdiff_t size = (ptrdiff_t)attn__cell(storage) * together;     /* of adjacent values */
    const char *get = (const char *)from;
    char *put = (char *)panel + lane * size;
    ptrdiff_t left = (n + together - 1) / together;         /* with padding */
    /* Several loops, because a copy of a constant size needs no call. */
#define ATTN__COPY(bytes) { \
        for (; left > 1; left -= 2) { \
            memcpy(put, get, bytes); \
            memcpy(put + ATTN__PANEL * (bytes), get + step * (bytes), bytes); \
            put += 2 * ATTN__PANEL * (bytes); \
            get += 2 * step * (bytes); \
        } \
        if (left) memcpy(put, get, bytes); \
    }
    if (size == 4) ATTN__COPY(4)
    else ATTN__COPY(2)                    /* no single bytes: Q8 has four together */
#undef ATTN__COPY
}

/* Writes a key into its lane. Lane 0 zeroes the others, because kernels read them. scale: that of
   the key, NULL if its format has none. */
static void attn__page_put_lane(const attn_kv *c, void *panel, int lane, const float *k,
                                float *scale)
{
    const int head_dim = c->shape.head_dim;
    const attn_storage storage = c->shape.k_storage;
    signed char bytes[ATTN__Q8_WIDEST + 4];       /* the key and padding */
    unsigned short block[32];             /* a part of the key */
    int i, n;
    if (lane == 0) memset(panel, 0, ATTN__PANEL * c->k_row);
    if (lane == 0 && scale) memset(scale, 0, ATTN__PANEL * sizeof *scale);
    if (scale) {
        memset(bytes + head_dim, 0, 4);
        *scale = attn__table(ATTN_AUTO)->round_row(bytes, k, (size_t)head_dim, &n);
        attn__write_lane(panel, lane, bytes, 1, head_dim, storage);
    } else if (storage == ATTN_F32) attn__write_lane(panel, lane, k, 1, head_dim, storage);
    else for (i = 0; i < head_dim; i += n) {
        n = attn__min(head_dim - i, 32);
        attn__table(ATTN_AUTO)->narrow(block, k + i, (size_t)n, storage);
        attn__write_lane((unsigned short *)panel + i * ATTN__PANEL, lane, block, 1, n, storage);
    }
}

/* Stores n keys, `row` floats apart, as whole panels. */
static void attn__page_put_panels(void *panels, const float *k, ptrdiff_t row, int n, int head_dim,
                                  attn_storage storage)
{
    const attn__kernels *kernels = attn__table(ATTN_AUTO);
    float piece[(int)ATTN__PANEL * 32];
    char *to = (char *)panels;
    int at, i, depth;
    if (storage == ATTN_F32) kernels->pack_k((float *)panels, k, row, n, head_dim);
    else for (at = 0; at < n; at += ATTN__PANEL)
        for (i = 0; i < head_dim; i += depth) {
            depth = attn__min(head_dim - i, 32);
            kernels->pack_k(piece, k + at * row + i, row, ATTN__PANEL, depth);
            kernels->narrow(to, piece, ATTN__PANEL * (size_t)depth, storage);
            to += ATTN__PANEL * attn__row_bytes((size_t)depth, storage);
        }
}

/* Stores keys at .. at + n - 1 of one head of a page: whole panels together, other keys one by
   one. */
static void attn__page_put_keys(const attn_kv *c, int page, int head, const float *k, ptrdiff_t row,
                                int n, int at)
{
    const int head_dim = c->shape.head_dim;
    const attn_storage storage = c->shape.k_storage;
    float *scale = attn__page_scale(c, page, head, at, 0);
    int some, i;
    for (i = 0; i < n; i += some) {
        int lane;
        void *panel = attn__page_key(c, page, head, at + i, &lane);
        const int panels = lane == 0 && !scale ? (n - i) / ATTN__PANEL : 0;
        some = panels > 0 ? panels * ATTN__PANEL : 1;
        if (some > 1) attn__page_put_panels(panel, k + i * row, row, some, head_dim, storage);
        else attn__page_put_lane(c, panel, lane, k + i * row, scale ? scale + i : NULL);
    }
}

/* Stores values as rows, padded with zeros because kernels read whole panels. With v_in_k the row
   is the key. */
static void attn__page_put_values(const attn_kv *c, int page, int head, const float *v,
                                  ptrdiff_t row, int n, int at)
{
    const int width = c->shape.v_in_k ? c->shape.head_dim : c->shape.v_head_dim;
    const attn_storage storage = c->shape.v_storage;
    const size_t used = (size_t)width * attn__cell(storage), all = c->v_row;
    char *to = (char *)attn__page_value(c, page, head, at);
    float *scale = attn__page_scale(c, page, head, at, 1);
    int i, sum;
    for (i = 0; i < n; i++, to += all) {
        if (scale)
            scale[i] = attn__table(ATTN_AUTO)->round_row((signed char *)to, v + i * row,
                                                         (size_t)width, &sum);
        else if (storage == ATTN_F32) memcpy(to, v + i * row, used);
        else attn__table(ATTN_AUTO)->narrow(to, v + i * row, (size_t)width, storage);
        if (all > used) memset(to + used, 0, all - used);
    }
}

/* Task: stores the new rows of one head of one entry, page by page. */
static void attn__kv_put(void *arg, int task)
{
    const attn__kv_rows *rows = (const attn__kv_rows *)arg;
    const attn_kv *c = rows->to;
    const int b = rows->first + task / c->shape.kv_heads, head = task % c->shape.kv_heads;
    /* Entry b begins `at` rows (ragged) or `at` entries after the start. */
    const ptrdiff_t at = rows->cum ? rows->cum[b] : b - rows->first;
    const int d = rows->cum ? 1 : 0;
    const float *k = rows->k + at * rows->k_stride[d] + head * rows->k_stride[2];
    const float *v = rows->v + at * rows->v_stride[d] + head * rows->v_stride[2];
    int key = c->lengths[b], left = attn__kv_count(rows, b), n;
    for (; left > 0; left -= n, key += n) {
        const int page = attn__kv_page(c, b, key), j = key % ATTN__CHUNK;
        n = attn__min(left, ATTN__CHUNK - j);
        if (!c->shape.v_in_k) attn__page_put_keys(c, page, head, k, rows->k_stride[1], n, j);
        attn__page_put_values(c, page, head, v, rows->v_stride[1], n, j);
        if (n == left) break;             /* no address after the last row */
        k += n * rows->k_stride[1];
        v += n * rows->v_stride[1];
    }
}

/* Appends checked rows; cannot fail. Lengths grow last, because the tasks read them. */
static void attn__kv_write(attn__kv_rows *rows, const attn_exec *exec)
{
    attn_kv *c = rows->to;
    int b;
    for (b = rows->first; b <= rows->last; b++) attn__kv_grow(c, b, attn__kv_count(rows, b));
    attn__run(exec, (rows->last - rows->first + 1) * c->shape.kv_heads, 0, attn__kv_put, rows);
    for (b = rows->first; b <= rows->last; b++) c->lengths[b] += attn__kv_count(rows, b);
}

static attn_status attn__check_free(attn__why *why, long long need, int idle)
{
    if (need <= idle) return ATTN_OK;
    return attn__fail(why, ATTN_E_FULL, "the cache needs %lld more pages but %d are free: %lld "
                      "are missing", need, idle, need - idle);
}

/* Rejects rows for which the pool has too few pages. Entries that share their last page each need a
   new one, except the last holder. */
static attn_status attn__check_pages(attn__why *why, const attn__kv_rows *rows)
{
    attn_kv *c = rows->to;
    long long need = 0;
    int b, pass;
    /* In the first pass each entry leaves its last page, and needs a new one if others still hold
       it. The second pass restores the holders. */
    for (pass = 0; pass < 2; pass++)
        for (b = rows->first; b <= rows->last; b++) {
            const int keys = attn__kv_keys(c, b), count = attn__kv_count(rows, b);
            const int *last = attn__kv_row(c, b) + keys / ATTN__CHUNK;
            if (count > 0 && keys % ATTN__CHUNK) {
                c->holders[*last] += pass ? 1 : -1;
                need += pass == 0 && c->holders[*last] > 0;
            }
            if (pass) continue;
            need += ((long long)keys + count + ATTN__CHUNK - 1) / ATTN__CHUNK;
            need -= attn__kv_pages(c, b);
        }
    return attn__check_free(why, need, c->free_pages);
}

/* Checks the counts, called `name`, and that the cache has room for all of them. */
static attn_status attn__kv_room(attn__why *why, const attn__kv_rows *rows, const char *name)
{
    int b;
    /* All counts are validated before room is checked. */
    for (b = rows->first; rows->counts && b <= rows->last; b++)
        if (rows->counts[b] < 0 || rows->counts[b] > rows->n)
            return attn__fail(why, ATTN_E_LENGTHS, "%s[%d] is %d but n is %d", name, b,
                              rows->counts[b], rows->n);
    for (b = rows->first; b <= rows->last; b++)
        ATTN__TRY(attn__check_room(why, rows->to, b, attn__kv_count(rows, b)));
    return attn__check_pages(why, rows);
}

/* Checks n rows per entry for attn_kv_append: not NULL, and outside the cache. */
static attn_status attn__check_kv_rows(attn__why *why, const attn__kv_rows *rows, const char *name,
                                       const float *at, const ptrdiff_t strides[3])
{
    const int entries = rows->last - rows->first + 1;
    const ptrdiff_t stride = strides[1];
    const size_t width = (size_t)rows->to->shape.kv_heads * (size_t)strides[2];
    size_t count, floats;
    /* Overlapping rows are always a mistake. */
    if ((size_t)stride < width)
        return attn__fail(why, ATTN_E_STRIDE, "row_stride is %lld but a row of %s has %lld floats",
                          (long long)stride, name, (long long)width);
    /* The last row has no stride after it. n is at least 1. */
    if (attn__mul((size_t)entries, (size_t)rows->n, &count) ||
        attn__mul(count - 1, (size_t)stride, &floats) || attn__add(floats, width, &floats) ||
        floats > ATTN__BYTES_MAX / sizeof(float))
        return attn__fail(why, ATTN_E_OVERFLOW, "%s is too large: %d x %d rows, %lld floats apart",
                          name, entries, rows->n, (long long)stride);
    ATTN__TRY(attn__check_given(why, name, at, floats));
    return attn__check_kv_apart(why, rows->to, name, at, floats * sizeof(float));
}

ATTNDEF attn_status attn_kv_append(attn_kv *c, int entry, const float *k, const float *v, int n,
                                   ptrdiff_t row_stride)
{
    attn__kv_rows rows;
    attn__why why;
    int first, last;
    ATTN__TRY(attn__kv_open(&why, "attn_kv_append", c, 0));
    ATTN__TRY(attn__check_kv_entries(&why, c, entry, &first, &last));
    ATTN__TRY(attn__check_count(&why, ATTN_E_SIZE, "n", n));
    ATTN__TRY(attn__check_count(&why, ATTN_E_STRIDE, "row_stride", row_stride));
    if (v && c->shape.v_in_k)
        return attn__fail(&why, ATTN_E_CONFLICT, "v is set, but c has v_in_k: its values are the "
                          "front of k");
    rows = attn__kv_rows_of(c, k, v, n, NULL, NULL, row_stride);
    rows.first = first;
    rows.last = last;
    ATTN__TRY(attn__kv_room(&why, &rows, NULL));
    if (n == 0) return ATTN_OK;
    ATTN__TRY(attn__check_kv_rows(&why, &rows, "k", k, rows.k_stride));
    if (!c->shape.v_in_k) ATTN__TRY(attn__check_kv_rows(&why, &rows, "v", v, rows.v_stride));
    attn__kv_write(&rows, NULL);
    return ATTN_OK;
}

/* ---- truncate and reset ---------------------------------------------------------------------- */

/* Checks that entry b can be cut to `length` keys. `name`: the argument in the sentence. */
static attn_status attn__check_kv_cut(attn__why *why, const char *name, const attn_kv *c, int b,
                                      int length)
{
    const int *gap = attn__kv_gap(c, b);
    if (length < 0 || length > c->lengths[b])
        return attn__fail(why, ATTN_E_LENGTHS, "%s is %d but entry %d holds %d keys", name, length,
                          b, c->lengths[b]);
    if (length <= gap[0] || length >= gap[1]) return ATTN_OK;
    return attn__fail(why, ATTN_E_LENGTHS, "%s is %d but keys %d..%d of entry %d are forgotten",
                      name, length, gap[0], gap[1] - 1, b);
}

/* Cuts entry b to `length` keys and drops later pages. */
static void attn__kv_cut(attn_kv *c, int b, int length)
{
    int *gap = attn__kv_gap(c, b), *row = attn__kv_row(c, b), held = attn__kv_pages(c, b);
    if (length <= gap[0]) gap[0] = gap[1] = 0;
    c->lengths[b] = length;
    while (held > attn__kv_pages(c, b)) attn__page_drop(c, row[--held]);
}

/* attn_kv_truncate and attn_kv_reset. */
static attn_status attn__kv_truncate(const char *function, attn_kv *c, int entry, int length)
{
    attn__why why;
    int b, first, last;
    ATTN__TRY(attn__kv_open(&why, function, c, 0));
    ATTN__TRY(attn__check_kv_entries(&why, c, entry, &first, &last));
    for (b = first; b <= last; b++)       /* checks every entry before it cuts any */
        ATTN__TRY(attn__check_kv_cut(&why, "length", c, b, length));
    for (b = first; b <= last; b++) attn__kv_cut(c, b, length);
    return ATTN_OK;
}

ATTNDEF attn_status attn_kv_truncate(attn_kv *c, int entry, int length)
{
    return attn__kv_truncate("attn_kv_truncate", c, entry, length);
}

ATTNDEF attn_status attn_kv_reset(attn_kv *c, int entry)
{
    return attn__kv_truncate("attn_kv_reset", c, entry, 0);
}

/* ---- keep: the accepted path of a tree ------------------------------------------------------- */
/* Copies key `from` of entry b over key `to` in the stored format. With v_in_k the key is its
   value. */
static void attn__kv_move(attn_kv *c, int b, int to, int from)
{
    const int to_page = attn__kv_page(c, b, to), from_page = attn__kv_page(c, b, from);
    const attn_storage storage = c->shape.k_storage;
    int head, lane, old, of_v;
    to %= ATTN__CHUNK;
    from %= ATTN__CHUNK;
    for (head = 0; head < c->shape.kv_heads; head++) {
        void *put = attn__page_key(c, to_page, head, to, &lane);
        const void *get = attn__page_key(c, from_page, head, from, &old);
        if (!c->shape.v_in_k)
            attn__write_lane(put, lane, attn__stored_at(get, (ptrdiff_t)attn__cell_of(
                             0, old, attn__formats[storage].together), storage), ATTN__PANEL,
                             c->shape.head_dim, storage);
        memcpy(attn__page_value(c, to_page, head, to), attn__page_value(c, from_page, head, from),
               c->v_row);
        for (of_v = 0; of_v < 2; of_v++) {
            float *scale = attn__page_scale(c, to_page, head, to, of_v);
            if (scale) *scale = *attn__page_scale(c, from_page, head, from, of_v);
        }
    }
}

/* Checks the list of rows to keep. */
static attn_status attn__check_keep(attn__why *why, const attn_kv *c, int b, int from,
                                    const int *rows, int n)
{
    const int *gap = attn__kv_gap(c, b);
    int i;
    ATTN__TRY(attn__check_kv_cut(why, "from", c, b, from));
    ATTN__TRY(attn__check_count(why, ATTN_E_SIZE, "n", n));
    if (n > c->lengths[b] - from)
        return attn__fail(why, ATTN_E_LENGTHS, "n is %d but entry %d has %d keys after from", n, b,
                          c->lengths[b] - from);
    if (n > 0 && from < gap[1])
        return attn__fail(why, ATTN_E_LENGTHS, "from is %d but entry %d has forgotten keys up to "
                          "%d", from, b, gap[1] - 1);
    ATTN__TRY(attn__check_given(why, "rows", rows, (size_t)n * sizeof(int)));
    ATTN__TRY(attn__check_kv_apart(why, c, "rows", rows, (size_t)n * sizeof(int)));
    for (i = 0; i < n; i++)
        if (rows[i] < (i > 0 ? rows[i - 1] + 1 : from) || rows[i] >= c->lengths[b]) {
            return attn__fail(why, ATTN_E_LENGTHS, "rows[%d] is %d but rows rise, from %d to %d at "
                              "most", i, rows[i], from, c->lengths[b] - 1);
        }
    return ATTN_OK;
}

/* Makes the pages of entry b with keys first .. last unshared. These keys come after the forgotten
   ones. */
static attn_status attn__kv_unshare(attn__why *why, attn_kv *c, int b, int first, int last)
{
    const int keys = attn__kv_keys(c, b), forgotten = c->lengths[b] - keys;
    const int begin = (first - forgotten) / ATTN__CHUNK, end = (last - forgotten) / ATTN__CHUNK;
    int *row = attn__kv_row(c, b), need = 0, i;
    for (i = begin; i <= end; i++) need += c->holders[row[i]] > 1;
    ATTN__TRY(attn__check_free(why, need, c->free_pages));
    for (i = begin; i <= end; i++)
        attn__page_own(c, row + i, attn__min(keys - i * ATTN__CHUNK, ATTN__CHUNK));
    return ATTN_OK;
}

ATTNDEF attn_status attn_kv_keep(attn_kv *c, int entry, int from, const int *rows, int n)
{
    attn__why why;
    int i = 0;
    ATTN__TRY(attn__kv_open(&why, "attn_kv_keep", c, entry));
    ATTN__TRY(attn__check_keep(&why, c, entry, from, rows, n));
    while (i < n && rows[i] == from + i) i++;     /* these are in place already */
    if (i < n) ATTN__TRY(attn__kv_unshare(&why, c, entry, from + i, from + n - 1));
    for (; i < n; i++) attn__kv_move(c, entry, from + i, rows[i]);     /* in ascending order */
    attn__kv_cut(c, entry, from + n);
    return ATTN_OK;
}

/* Sets the keys that entry b will have forgotten: gap[0] .. gap[1] - 1. */
static attn_status attn__check_forget(attn__why *why, const attn_kv *c, int b, int pinned,
                                      int before, int gap[2])
{
    const int *old = attn__kv_gap(c, b);
    gap[0] = old[0];
    gap[1] = old[1];
    if (before > c->lengths[b] || pinned < 0 || pinned > c->lengths[b]) {
        const int late = before > c->lengths[b];
        return attn__fail(why, ATTN_E_LENGTHS, "%s is %d but entry %d has had %d keys",
                          late ? "before" : "pinned", late ? before : pinned, b, c->lengths[b]);
    }
    pinned = (int)attn__up((size_t)pinned, ATTN__CHUNK);
    before = before / ATTN__CHUNK * ATTN__CHUNK;
    if (pinned >= before) return ATTN_OK;         /* no whole page in between */
    if (old[0] < old[1] && (pinned > old[1] || before < old[0])) {
        return attn__fail(why, ATTN_E_LENGTHS, "keys %d..%d of entry %d are forgotten: keys %d..%d "
                          "do not touch them", old[0], old[1] - 1, b, pinned, before - 1);
    }
    if (old[0] == old[1] || pinned < gap[0]) gap[0] = pinned;
    if (before > gap[1]) gap[1] = before;
    return ATTN_OK;
}

/* Drops the pages between gap[0] and gap[1] and closes the gap in the table. */
static void attn__kv_forget(attn_kv *c, int b, const int gap[2])
{
    int *old = attn__kv_gap(c, b), *row = attn__kv_row(c, b);
    const int held = attn__kv_pages(c, b);
    int i, stay = 0;
    for (i = 0; i < held; i++) {
        const int at = i * ATTN__CHUNK, key = at < old[0] ? at : at + (old[1] - old[0]);
        if (key < gap[0] || key >= gap[1]) row[stay++] = row[i];
        else attn__page_drop(c, row[i]);
    }
    old[0] = gap[0];
    old[1] = gap[1];
}

ATTNDEF attn_status attn_kv_forget(attn_kv *c, int entry, int pinned, int before)
{
    attn__why why;
    int gap[2], b, first, last;
    ATTN__TRY(attn__kv_open(&why, "attn_kv_forget", c, 0));
    ATTN__TRY(attn__check_kv_entries(&why, c, entry, &first, &last));
    for (b = first; b <= last; b++)       /* checks every entry before any forgets */
        ATTN__TRY(attn__check_forget(&why, c, b, pinned, before, gap));
    for (b = first; b <= last; b++) {
        (void)attn__check_forget(&why, c, b, pinned, before, gap);
        attn__kv_forget(c, b, gap);
    }
    return ATTN_OK;
}

/* Makes entry `to` share the pages of entry `from` of `old`. The caller drops the previous pages of
   `to`. */
static void attn__kv_share(attn_kv *c, int to, const attn_kv *old, int from)
{
    int *row = attn__kv_row(c, to), i;
    c->lengths[to] = old->lengths[from];
    memcpy(attn__kv_gap(c, to), attn__kv_gap(old, from), 2 * sizeof(int));
    for (i = 0; i < attn__kv_pages(c, to); i++) {
        row[i] = attn__kv_row(old, from)[i];
        c->holders[row[i]]++;
    }
}

ATTNDEF attn_status attn_kv_reorder(attn_kv *c, const int *map)
{
    attn__why why;
    attn_kv old;
    int b, i;
    ATTN__TRY(attn__kv_open(&why, "attn_kv_reorder", c, 0));
    ATTN__TRY(attn__check_given(&why, "map", map, 1));
    for (b = 0; b < c->shape.batch; b++)
        if (map[b] < 0 || map[b] >= c->shape.batch)
            return attn__fail(&why, ATTN_E_MAP, "map[%d] is %d but must be 0..%d", b, map[b],
                              c->shape.batch - 1);
    ATTN__TRY(attn__check_kv_apart(&why, c, "map", map, (size_t)c->shape.batch * sizeof(int)));
    /* scratch has room for the old lengths, gaps and table. */
    old = *c;
    old.lengths = c->scratch;
    old.gaps = old.lengths + (c->gaps - c->lengths);
    old.table = old.lengths + (c->table - c->lengths);
    memcpy(old.lengths, c->lengths, (size_t)(c->scratch - c->lengths) * sizeof(int));
    /* Pages are shared before the old ones are dropped, so a page that is still used never becomes
       idle. */
    for (b = 0; b < c->shape.batch; b++) attn__kv_share(c, b, &old, map[b]);
    for (b = 0; b < c->shape.batch; b++)
        for (i = 0; i < attn__kv_pages(&old, b); i++) attn__page_drop(c, attn__kv_row(&old, b)[i]);
    return ATTN_OK;
}

ATTNDEF attn_status attn_kv_copy(attn_kv *c, int to, int from, int length)
{
    attn__why why;
    ATTN__TRY(attn__kv_open(&why, "attn_kv_copy", c, 0));
    ATTN__TRY(attn__check_kv_entry(&why, c, "to", to));
    ATTN__TRY(attn__check_kv_entry(&why, c, "from", from));
    ATTN__TRY(attn__check_kv_cut(&why, "length", c, from, length));
    if (to != from) {                     /* shares all keys, then cuts */
        attn__kv_cut(c, to, 0);
        attn__kv_share(c, to, c, from);
    }
    attn__kv_cut(c, to, length);
    return ATTN_OK;
}

/* ---- read ------------------------------------------------------------------------------------ */

typedef struct attn__kv_reading {
    const attn_kv *c;
    int entry, first, n;
    float *k, *v;                         /* NULL: not read */
} attn__kv_reading;

/* Task: reads keys and values, times their scales. */
static void attn__kv_get(void *arg, int task)
{
    const attn__kv_reading *r = (const attn__kv_reading *)arg;
    const attn_kv *c = r->c;
    const attn_kv_args *s = &c->shape;
    float *k = r->k, *v = r->v;
    int key, head, lane, i;
    (void)task;
    for (key = r->first; key < r->first + r->n; key++)
        for (head = 0; head < s->kv_heads; head++) {
            const int page = attn__kv_page(c, r->entry, key), j = key % ATTN__CHUNK;
            const void *from = attn__page_key(c, page, head, j, &lane);
            const float *scale = attn__page_scale(c, page, head, j, 0);
            for (i = 0; k && i < s->head_dim; i++)
                *k++ = attn__scaled(attn__stored(from, lane, (size_t)i, s->k_storage), scale);
            from = attn__page_value(c, page, head, j);
            scale = attn__page_scale(c, page, head, j, 1);
            for (i = 0; v && i < s->v_head_dim; i++)
                *v++ = attn__scaled(attn__stored(from, -1, (size_t)i, s->v_storage), scale);
        }
}

ATTNDEF attn_status attn_kv_read(const attn_kv *c, int entry, int first, int n, float *k, float *v)
{
    const attn_kv_args *s;
    attn__why why;
    size_t heads, k_bytes, v_bytes;
    const int *gap;
    attn__kv_reading reading;
    ATTN__TRY(attn__kv_open(&why, "attn_kv_read", c, entry));
    ATTN__TRY(attn__check_count(&why, ATTN_E_SIZE, "n", n));
    if (first < 0 || first > c->lengths[entry] || n > c->lengths[entry] - first)
        return attn__fail(&why, ATTN_E_LENGTHS, "first is %d and n %d but the entry has %d keys",
                          first, n, c->lengths[entry]);
    gap = attn__kv_gap(c, entry);
    if (n > 0 && first < gap[1] && first + n > gap[0])
        return attn__fail(&why, ATTN_E_LENGTHS, "keys %d..%d of the entry are forgotten", gap[0],
                          gap[1] - 1);
    ATTN__TRY(attn__check_align(&why, "k", k, ATTN__CELL_ALIGN));
    ATTN__TRY(attn__check_align(&why, "v", v, ATTN__CELL_ALIGN));
    s = &c->shape;
    /* n rows exist in memory, so these products cannot wrap. */
    heads = (size_t)n * (size_t)s->kv_heads * sizeof(float);
    k_bytes = k ? heads * (size_t)s->head_dim : 0;
    v_bytes = v ? heads * (size_t)s->v_head_dim : 0;
    ATTN__TRY(attn__check_apart(&why, "k", k, k_bytes, "v", v, v_bytes));
    ATTN__TRY(attn__check_apart(&why, "k", k, k_bytes, "the memory of c", c->memory, c->bytes));
    ATTN__TRY(attn__check_apart(&why, "v", v, v_bytes, "the memory of c", c->memory, c->bytes));
    reading.c = c;
    reading.entry = entry;
    reading.first = first;
    reading.n = n;
    reading.k = k;
    reading.v = v;
    attn__run(NULL, 1, 0, attn__kv_get, &reading);
    return ATTN_OK;
}

/* ---- save and load -----------------------------------------------------------------------------
   A header of 64 bytes, then the rows that exist, in key order: K of all heads, then V of all
   heads; then zeros up to a multiple of 4. Numbers are words of four bytes, or values of two or
   one, lowest byte first. In 8 bits the scale, a float, follows the values of a row. After the
   magic word:
       8 version       12 storage (attn_storage)   16 kv_heads   20 head_dim   24 v_head_dim
       28 length       32, 36 forgotten from, to   40..52 zeros              56 checksum, two words
   The checksum covers all other words in order. Version 2: V has another storage than K; 12 is the
   storage of K, 40 that of V. Version 3: v_in_k, so no V follows K. */
enum { ATTN__SAVED_HEADER = 64, ATTN__SAVED_SUM = 56, ATTN__SAVED_V_IN_K = 3 };

static unsigned attn__get_word(const unsigned char *from)
{
    return from[0] | (unsigned)from[1] << 8 | (unsigned)from[2] << 16 | (unsigned)from[3] << 24;
}

/* Every step is reversible, so a change of any single word changes the sum. */
static unsigned long long attn__saved_sum(const unsigned char *bytes, size_t size)
{
    unsigned long long sum = 0xcbf29ce484222325u;
    size_t at;
    for (at = 0; at < size; at += 4) {
        if (at >= ATTN__SAVED_SUM && at < ATTN__SAVED_HEADER) continue;
        sum = (sum ^ attn__get_word(bytes + at)) * 0x100000001b3u;
        sum ^= sum >> 32;
    }
    return sum;
}

/* Bytes of an entry, written (save) or read (save is NULL), from offset `at` on. */
typedef struct attn__saved {
    unsigned char *save;
    const unsigned char *load;
    size_t at;
} attn__saved;

/* Copies n numbers of `size` bytes between machine order and the saved bytes. They are adjacent
   (lane -1), or this lane of a panel, `together` of which are adjacent. */
static void attn__saved_numbers(attn__saved *bytes, void *row, int lane, int n, size_t size,
                                size_t together)
{
    const unsigned one = 1;
    const int lowest_first = *(const unsigned char *)&one;
    int i;
    for (i = 0; i < n; i++) {
        unsigned char *number = (unsigned char *)row +
                                attn__cell_of((size_t)i, lane, together) * size;
        size_t j;
        for (j = 0; j < size; j++, bytes->at++) {
            unsigned char *byte = number + (lowest_first ? j : size - 1 - j);
            if (bytes->save) bytes->save[bytes->at] = *byte;
            else *byte = bytes->load[bytes->at];
        }
    }
}

/* Writes the header of entry b without its checksum. */
static void attn__saved_header(const attn_kv *c, int b, attn__saved *bytes)
{
    const attn_kv_args *s = &c->shape;
    const int *gap = attn__kv_gap(c, b), alike = s->k_storage == s->v_storage;
    int word[] = {
        s->v_in_k ? (int)ATTN__SAVED_V_IN_K : alike ? 1 : 2, (int)s->k_storage, s->kv_heads,
        s->head_dim, s->v_head_dim, c->lengths[b], gap[0], gap[1], alike ? 0 : (int)s->v_storage
    };
    memset(bytes->save, 0, ATTN__SAVED_HEADER);
    memcpy(bytes->save, "attn.kv", 8);
    bytes->at = 8;
    attn__saved_numbers(bytes, word, -1, (int)(sizeof word / sizeof *word), sizeof *word, 1);
}

/* Returns the bytes of one key and its value, all heads. */
static size_t attn__saved_row(const attn_kv *c)
{
    const attn_kv_args *s = &c->shape;
    return (size_t)s->kv_heads *
           (attn__row_bytes((size_t)s->head_dim, s->k_storage) +
            (s->v_in_k ? 0 : attn__row_bytes((size_t)s->v_head_dim, s->v_storage)));
}

static size_t attn__saved_size(const attn_kv *c, int b)
{
    return ATTN__SAVED_HEADER + attn__up((size_t)attn__kv_keys(c, b) * attn__saved_row(c), 4);
}

ATTNDEF size_t attn_kv_saved(const attn_kv *c, int entry)
{
    attn__why why;
    const attn_status status = attn__kv_open(&why, "attn_kv_saved", c, entry);
    return status == ATTN_OK ? attn__saved_size(c, entry) : (size_t)-1;
}

/* Copies a row of n values, then its scale, NULL if its format has none. */
static void attn__saved_values(attn__saved *bytes, void *row, int lane, int n,
                               attn_storage storage, float *scale)
{
    attn__saved_numbers(bytes, row, lane, n, attn__cell(storage), attn__formats[storage].together);
    if (scale) attn__saved_numbers(bytes, scale, -1, 1, sizeof *scale, 1);
}

/* Copies the keys and values of entry b after its header. */
static void attn__saved_rows(const attn_kv *c, int b, int keys, attn__saved *bytes)
{
    const attn_kv_args *s = &c->shape;
    int j, head, lane;
    bytes->at = ATTN__SAVED_HEADER;
    for (j = 0; j < keys; j++) {
        const int page = attn__kv_row(c, b)[j / ATTN__CHUNK], at = j % ATTN__CHUNK;
        for (head = 0; head < s->kv_heads; head++) {
            void *k = attn__page_key(c, page, head, at, &lane);
            attn__saved_values(bytes, k, lane, s->head_dim, s->k_storage,
                               attn__page_scale(c, page, head, at, 0));
        }
        for (head = 0; head < s->kv_heads && !s->v_in_k; head++) {
            void *v = attn__page_value(c, page, head, at);
            attn__saved_values(bytes, v, -1, s->v_head_dim, s->v_storage,
                               attn__page_scale(c, page, head, at, 1));
        }
    }
}

ATTNDEF attn_status attn_kv_save(const attn_kv *c, int entry, void *bytes, size_t size)
{
    attn__why why;
    attn__saved to = { (unsigned char *)bytes, NULL, 0 };
    unsigned long long sum;
    size_t need;
    ATTN__TRY(attn__kv_open(&why, "attn_kv_save", c, entry));
    need = attn__saved_size(c, entry);
    if (!bytes) return attn__fail(&why, ATTN_E_NULL, "bytes is NULL");
    ATTN__TRY(attn__check_memory(&why, "size", "attn_kv_saved", bytes, size, need));
    ATTN__TRY(attn__check_kv_apart(&why, c, "bytes", bytes, need));
    attn__saved_header(c, entry, &to);
    attn__saved_rows(c, entry, attn__kv_keys(c, entry), &to);
    memset(to.save + to.at, 0, need - to.at);
    sum = attn__saved_sum(to.save, need);
    to.at = ATTN__SAVED_SUM;
    attn__saved_numbers(&to, &sum, -1, 1, sizeof sum, 1);
    return ATTN_OK;
}

/* Rejects a header whose shape is not that of c. */
static attn_status attn__check_saved_shape(attn__why *why, const attn_kv *c, const unsigned *word)
{
    const attn_kv_args *s = &c->shape;
    const attn__pair same[] = {
        { "k_storage", word[3], s->k_storage }, { "kv_heads", word[4], s->kv_heads },
        { "head_dim", word[5], s->head_dim }, { "v_head_dim", word[6], s->v_head_dim },
        { "v_storage", word[2] == 2 ? word[10] : word[3], s->v_storage },
        { "v_in_k", word[2] == ATTN__SAVED_V_IN_K, s->v_in_k }
    };
    return attn__check_same(why, " in the bytes", " in the cache", same, 6);
}

/* Returns 1 if a saved row of 8 bits has the value -128, which no rounding gives: kernels rely on
   that. */
static int attn__saved_wrong(const attn_kv *c, const unsigned char *row, unsigned keys)
{
    const attn_kv_args *s = &c->shape;
    int side, head, i;
    for (; keys > 0; keys--)
        for (side = 0; side < (s->v_in_k ? 1 : 2); side++) {
            const attn_storage storage = side ? s->v_storage : s->k_storage;
            const int n = side ? s->v_head_dim : s->head_dim;
            for (head = 0; head < s->kv_heads; head++, row += attn__row_bytes((size_t)n, storage))
                for (i = 0; i < n && storage == ATTN_Q8; i++)
                    if (row[i] == 0x80) return 1;
        }
    return 0;
}

/* Checks that these bytes are a saved entry of a cache like c. Sets `saved` to its length and its
   forgotten range. */
static attn_status attn__check_saved(attn__why *why, const attn_kv *c, const unsigned char *from,
                                     size_t size, unsigned saved[3])
{
    unsigned word[ATTN__SAVED_SUM / 4], version;
    size_t payload = 0;
    unsigned long long sum;
    int i, agree;
    if (size < ATTN__SAVED_HEADER || memcmp(from, "attn.kv", 8))
        return attn__fail(why, ATTN_E_BYTES, "these %lld bytes are not an entry that attn_kv_save "
                          "has written", (long long)size);
    for (i = 0; i < ATTN__SAVED_SUM / 4; i++) word[i] = attn__get_word(from + 4 * i);
    version = word[2];
    if (version < 1 || version > ATTN__SAVED_V_IN_K)
        return attn__fail(why, ATTN_E_BYTES, "the bytes are of version %lld but 1..%d are known",
                          (long long)version, ATTN__SAVED_V_IN_K);
    sum = attn__saved_sum(from, size / 4 * 4);
    if (size % 4 || attn__get_word(from + ATTN__SAVED_SUM) != (unsigned)(sum & 0xffffffffu) ||
        attn__get_word(from + ATTN__SAVED_SUM + 4) != (unsigned)(sum >> 32))
        return attn__fail(why, ATTN_E_BYTES, "the %lld bytes are damaged, or not all of them",
                          (long long)size);
    if ((version != 2 && word[10]) | word[11] | word[12] | word[13])
        return attn__fail(why, ATTN_E_BYTES, "the bytes have numbers where version %d has zeros",
                          (int)version);
    if (version == 2 && word[10] == word[3])
        return attn__fail(why, ATTN_E_BYTES, "K and V are stored alike, which version 2 cannot "
                          "say");
    ATTN__TRY(attn__check_saved_shape(why, c, word));
    for (i = 0; i < 3; i++) saved[i] = word[7 + i];
    /* A valid checksum can be forged, so every number is checked. */
    agree = saved[0] <= (unsigned)ATTN__SIZE_MAX && saved[2] <= saved[0] &&
        (saved[2] > 0 ? saved[1] < saved[2] : saved[1] == 0) &&
        saved[1] % ATTN__CHUNK == 0 && saved[2] % ATTN__CHUNK == 0 &&
        !attn__mul(saved[0] - (saved[2] - saved[1]), attn__saved_row(c), &payload) &&
        payload <= size - ATTN__SAVED_HEADER &&       /* so rounding it up cannot wrap */
        attn__up(payload, 4) == size - ATTN__SAVED_HEADER;
    /* Padding up to the next multiple of 4 must be zero. */
    for (; agree && payload % 4; payload++) agree = from[ATTN__SAVED_HEADER + payload] == 0;
    if (!agree)
        return attn__fail(why, ATTN_E_BYTES, "length %lld and forgotten keys from %lld to %lld do "
                          "not agree with the bytes", (long long)saved[0], (long long)saved[1],
                          (long long)saved[2]);
    if (attn__saved_wrong(c, from + ATTN__SAVED_HEADER, saved[0] - (saved[2] - saved[1])))
        return attn__fail(why, ATTN_E_BYTES, "a value of 8 bits is -128 but -127 is the least");
    return ATTN_OK;
}

/* Checks that there is room for this many keys after the entry has dropped its pages. */
static attn_status attn__check_load(attn__why *why, const attn_kv *c, int b, int keys)
{
    int i, room = c->free_pages;
    if (keys > c->shape.capacity)
        return attn__fail(why, ATTN_E_FULL, "%d keys are saved but an entry of the cache holds %d",
                          keys, c->shape.capacity);
    for (i = 0; i < attn__kv_pages(c, b); i++) room += c->holders[attn__kv_row(c, b)[i]] == 1;
    return attn__check_free(why, (keys + ATTN__CHUNK - 1) / ATTN__CHUNK, room);
}

ATTNDEF attn_status attn_kv_load(attn_kv *c, int entry, const void *bytes, size_t size)
{
    attn__saved from = { NULL, (const unsigned char *)bytes, 0 };
    attn__why why;
    unsigned saved[3] = { 0, 0, 0 };     /* for gcc, which assumes that the check may not set it */
    int keys, i;
    ATTN__TRY(attn__kv_open(&why, "attn_kv_load", c, entry));
    if (!bytes) return attn__fail(&why, ATTN_E_NULL, "bytes is NULL");
    ATTN__TRY(attn__check_kv_apart(&why, c, "bytes", bytes, size));
    ATTN__TRY(attn__check_saved(&why, c, from.load, size, saved));
    keys = (int)(saved[0] - (saved[2] - saved[1]));
    ATTN__TRY(attn__check_load(&why, c, entry, keys));
    attn__kv_cut(c, entry, 0);
    attn__kv_grow(c, entry, keys);
    /* Kernels read whole panels: unused keys and columns are zeros. */
    for (i = 0; i * ATTN__CHUNK < keys; i++)
        memset(attn__page_at(c, attn__kv_row(c, entry)[i], 0), 0, c->page_size);
    attn__saved_rows(c, entry, keys, &from);
    c->lengths[entry] = (int)saved[0];
    attn__kv_gap(c, entry)[0] = (int)saved[1];
    attn__kv_gap(c, entry)[1] = (int)saved[2];
    return ATTN_OK;
}

#endif /* ATTN_NO_CACHE */

/* =================================================================================================
 * 8  THE DRIVER: blocks of rows, chunks of keys, the fold. No instruction set is named here.
 *
 * A call is prepared, then run. attn__call_make checks it (section 5) and plans it: tasks, routes,
 * parts of a slot, size of the workspace. attn__call_place divides the workspace: it resolves the
 * entries, finds those that share keys, cuts all into blocks and numbers these. attn__call_run and
 * the functions that it calls only read the struct attn__call (section 2).
 *
 *   entry   one sequence of the batch: its query rows, and the K/V entry that they read
 *   place   the index of an entry in call->order, where entries that read the same keys are
 *           neighbours
 *   reader  an entry in a block. With n rows it has n * group rows for each K/V head, where group
 *           is the number of query heads of a K/V head
 *   cut     how entries are divided into blocks: the K/V heads and rows of each
 *   block   rows that read K and V together: of one or several K/V heads, of one or several readers
 *           of the same keys (beams, copies). Row r of a reader's K/V head is row r / group of the
 *           entry, for query head r % group of the K/V head. Rows of a K/V head are adjacent.
 *           `local` is a K/V head, counted from the first one of the block; `per_head` are rows of
 *           one K/V head: the most of a cut, all of a block, those of a view, those of a band
 *   split   some of the chunks of a block, if there are too few blocks for the threads. Each chunk
 *           then stores its states in a separate set, in the workspace. With parts it always
 *           does, in carry_out
 *   item    a unit of work, a block or a split: tasks take one after another. Each task has a slot,
 *           its work memory
 *   chunk   128 keys, cut at 0, 128, 256, ... counted from the entry's first key; a cache stores a
 *           chunk in a page, and forgotten chunks have none
 *   view    a chunk as some rows of a block read it: those of readers with the same page
 *   panel   16 keys of K, or 16 columns of V, interleaved as the kernels read them
 *   run     adjacent panels that one kernel call takes. Sums continue from run to run
 *   slice   16 keys of all heads of a block in rows of memory: V may be read slice by slice
 *   tile    register tile: the rows and columns of a product that are held in registers
 *   band    rows of a view that go from scores to outputs together, so that their scores stay in
 *           L1. Thin: whole K/V heads, up to 48 rows; thick: up to 4 tiles that see the same panels
 *   state   maximum m, sum l, outputs o of a row after a chunk, and whether it has seen a key;
 *           folded into (M, L, o) in key order. carry_in, carry_out and parts are states of all
 *           rows in the caller's format (section 1, STATES)
 *   seen    a key is seen if it is in the range of some row of the view (lengths, starts, causal
 *           masks, windows), and mask, keep, bias and rel_bias do not hide it from this row; a
 *           panel, if some row (thick: of the tile) sees one of its keys, or, without arrays, if it
 *           is between two such panels. Only seen panels are scored and multiplied. Few seen keys
 *           of up to 4 rows are listed: V, and K in rows, are then read in place for these only
 *   route   how the rows of a K/V head go through a chunk (attn__plan_routes):
 *
 *   rows of a K/V head   K in rows   K in panels   V                          products prefetch
 *   in a view
 *    1, 2      thin      in place    in place      in place                   -
 *    3, 4      thin      in place    in place      in place                   the next operand
 *    5 .. 40   thin      packed      in place      in place; packed if        the next operand
 *                                                  plain rows end inside
 *                                                  a panel
 *   41 ..      thick     packed      in place      packed                     -
 *
 * K in place in rows also prefetches itself, 32 keys ahead (keys_ahead in section 12). Nearly all
 * caches have K in panels; plain tensors and caches with v_in_k have it in rows. K and V that are
 * not floats may be widened first (16 bits from 17 rows on), which attn__widens_from decides for
 * each route. Blocks are independent, as are the rows of a block: no bit depends on which rows
 * share a block.
 * ============================================================================================== */
enum {
    ATTN__BAND = 48,                      /* max rows of a band: whole vectors for every backend */
    ATTN__MOST_ROWS = 32 * ATTN__BAND,    /* max rows of a block */
    ATTN__MOST_TILES = ATTN__MOST_ROWS / 6,       /* 6: min rows of a tile */
    ATTN__THIN_ROWS = 40,                 /* max rows per K/V head of a thin block or view, whose V
                                             is read in place, unless its rows end inside a panel:
                                             32 rows take 0.93 to 1 of the time of packed V */
    ATTN__FEW_ROWS = 4,                   /* max rows per K/V head for reading K rows in place (0.81
                                             to 0.95 of the time of packed K), and for listing
                                             keys */
    ATTN__LISTED = 32,                    /* max keys of a chunk that are taken one by one */
    ATTN__SPLIT_ROWS = 24,                /* max rows of a block that is split for
                                             threads */
    ATTN__WHOLE_TILES = 24,               /* a multiple of the tile rows of every backend */
    /* items per thread that are enough to keep all threads busy to the end: of thin blocks, and in
       a short call; of thick blocks; of entries that share keys; of split blocks, and of parts */
    ATTN__THIN_ITEMS = 4, ATTN__SHORT_ITEMS = 2, ATTN__THICK_ITEMS = 3, ATTN__SHARED_ITEMS = 2,
    ATTN__SPLIT_ITEMS = 2, ATTN__PART_ITEMS = 4,
    ATTN__BLOCK_HEADS = 32,               /* max K/V heads of a block: bits of `selects` */
    ATTN__STORED_ROWS = 16,               /* max rows for widening 16 bits in registers: half then
                                             takes 0.75 of the time of floats */
    ATTN__WIDENED_WIDTH = 64,             /* max K/V heads of a thin block times head_dim if a cache
                                             is widened: a chunk stays in or near L1 */
    ATTN__PACKED_WIDTH = 512              /* the same if K is packed: a chunk stays in L2 */
};

/* Max rows of a block times the width of a head. More rows: K and V are packed less often. Fewer
   rows: q * scale and the outputs, which are read once per chunk, stay in a nearer cache. */
#define ATTN__BLOCK_FLOATS 67584

/* ---- blocks, views and bands ----------------------------------------------------------------- */

#define ATTN__PART(type, name) type *name;
typedef struct attn__parts { ATTN__SLOT_PARTS(ATTN__PART) } attn__parts;
#undef ATTN__PART

/* A block in work: which rows it has, and where. It is itself a part of its slot, which
   attn__slot_open prepares once per task. */
typedef struct attn__block {
    const attn__call *call;
    struct attn__slot *slot;
    attn__parts mem;                      /* the other parts of the slot */
    const attn__entry *entry;             /* the first reader */
    int place;                            /* of the first reader, which may have no row here */
    int readers;                          /* at this place */
    int each;                             /* rows of one reader for one K/V head */
    int kv_head, kv_heads;                /* K/V heads kv_head .. kv_head + kv_heads - 1 */
    int first_row, per_head;              /* rows first_row .. first_row + per_head - 1 of each K/V
                                             head */
    int rows;                             /* of all K/V heads: row r belongs to K/V head
                                             r / per_head. Rows of a K/V head: reader after
                                             reader */
    int arrays;                           /* 1: has some of ATTN__MASKS, or a rel_bias that hides */
    int weighs;                           /* 1: the call writes weights of one of its heads */
    int sees_all;                         /* by position every row sees all keys of the longest
                                             entry */
    int chunk, end;                       /* chunks chunk .. end - 1 have all keys that rows see by
                                             position */
} attn__block;

/* Where K or V of a chunk is read. */
typedef struct attn__source {
    const void *at;                       /* the first key, for the block's first head */
    ptrdiff_t head;                       /* bytes from head to head */
    ptrdiff_t step;                       /* values from key to key; of K in panels, including
                                             padding */
    ptrdiff_t panel;                      /* of V: values from 16 columns to the next 16 */
    int last_columns;                     /* of V: valid columns of the last panel; 0: all */
    attn_storage stored;
    const float *scale;                   /* NULL, or the scale of each key, for the first head */
    int scale_head;                       /* scales from head to head */
} attn__source;

/* Returns the address of value x, for head `local` of the block. */
ATTN__INLINE const void *attn__source_at(const attn__source *source, int local, ptrdiff_t x)
{
    return attn__stored_at(attn__nth(source->at, local, source->head), x, source->stored);
}

/* Returns the scales of the keys, for head `local` of the block. */
ATTN__INLINE const float *attn__scales_of(const attn__source *source, int local)
{
    return source->scale + local * (ptrdiff_t)source->scale_head;
}

/* The keys of a chunk that the rows of a view see, as attn__see finds them. Keys are counted from
   the first one of the chunk. */
typedef struct attn__visibility {
    int lo, hi;                           /* the smallest range lo <= j < hi with all seen keys */
    int partial;                          /* 1: perhaps some row does not see all of them */
    int gaps;                             /* 1: some K/V head does not see every key of
                                             lo .. hi - 1 */
    attn__keys keys;                      /* with gaps: keys that some row sees */
    unsigned panels;                      /* panels with a key that some row sees: scored */
    /* of each register tile (thin: the only one): panels that it sees; its range by position */
    unsigned char tile_panels[ATTN__MOST_TILES];
    unsigned char tile_lo[ATTN__MOST_TILES], tile_hi[ATTN__MOST_TILES];
    unsigned char listed[ATTN__LISTED];   /* at most four rows of a K/V head: each seen key, as its
                                             distance from lo */
    int n_listed;                         /* number of listed keys; 0: panels are used */
} attn__visibility;

/* A chunk as rows from .. from + per_head - 1 of each K/V head of a block read it. */
typedef struct attn__view {
    unsigned route;
    int from, per_head;
    int chunk;                            /* its number; forgotten chunks are not counted
                                             (attn__chunk_key) */
    int first_key, keys;                  /* its first key from entry->start on; keys that exist */
    int page;                             /* of a cache */
    int slices;                           /* 1: V is read slice by slice, in address order: from
                                             memory 2 to 4 rows take 0.78 to 0.85 of the time */
    int tile_rows;                        /* thin: rows of a K/V head; thick: of a register tile */
    int band_rows, band_heads;            /* max rows of a K/V head in a band, and its max K/V
                                             heads */
    attn__source k, v;                    /* where K and V are read */
    attn__visibility sees;                /* the keys that are seen */
    unsigned selects;                     /* bit `local`: p . v leaves out hidden keys of each row
                                             (attn__view_selects) */
} attn__view;

/* Rows of a block that go through a chunk together. */
typedef struct attn__band {
    int start, rows;                      /* its first row in the block; number of rows */
    int first_head, end_head;             /* their K/V heads, counted from the block's first */
    int per_head;                         /* rows of each of these heads */
    int at_once;                          /* heads per product: all if each has one row, else 1 */
    int step;                             /* distance in the block of the rows of a product */
    int lo, hi;                           /* keys that some of them see by position, within those
                                             that the view sees */
    unsigned panels;                      /* panels with a key that a row of the tile (thick) or
                                             of the view (thin) sees */
    attn__softmax softmax;
    float M[ATTN__BAND], L[ATTN__BAND];   /* if heads are not adjacent: copies of the fold so far */
    float m[ATTN__BAND], l[ATTN__BAND];   /* states of the chunk */
    /* factors of the outputs so far, and of those of the chunk */
    float fold_a[ATTN__BAND], fold_b[ATTN__BAND];
} attn__band;

/* The beginning of every slot. */
typedef struct attn__slot {
    size_t empty;                         /* rows of this slot that have seen no key */
    attn__block block;                    /* current block; the scalar backend has no room for the
                                             following members */
    attn__view view;                      /* current chunk */
    attn__band band;                      /* current band */
} attn__slot;

/* ---- the plan: routes ------------------------------------------------------------------------ */

/* Returns the index of the route of this many rows of a K/V head. */
ATTN__INLINE int attn__route_index(int rows)
{
    return rows <= 2 ? 0 : rows <= ATTN__FEW_ROWS ? 1 : rows <= ATTN__STORED_ROWS ? 2
         : rows <= ATTN__THIN_ROWS ? 3 : 4;
}

/* Returns the first route that widens keys or values of this format to floats, once per chunk. 16
   bits are widened in registers for up to 16 rows. Keys in 8 bits are multiplied as integers, and
   values are widened by products and by packing. Formats that kernels do not read, and all formats
   with v_in_k, are always widened. */
static int attn__widens_from(const attn__call *call, attn_storage storage)
{
    if (storage == ATTN_F32) return ATTN__ROUTES;
    if (!call->k_in_panels || !call->kernels->reads(storage)) return 0;
    return storage == ATTN_Q8 ? (int)ATTN__ROUTES : attn__route_index(ATTN__STORED_ROWS + 1);
}

/* Sets the route for each number of rows. Products of one or two rows read sequentially, and thick
   blocks read each chunk for many rows: neither gains by prefetching. Widened chunks keep it for
   their last product, which prefetches the next page: 24 rows from memory take 0.85 of the time. */
static void attn__plan_routes(attn__call *call)
{
    static const unsigned char routes[3][ATTN__ROUTES] = {
        /* K in panels */
        { ATTN__THIN, ATTN__THIN | ATTN__AHEAD, ATTN__THIN | ATTN__AHEAD, ATTN__THIN | ATTN__AHEAD,
          ATTN__PACK_V },
        /* K in rows */
        { ATTN__THIN | ATTN__IN_PLACE, ATTN__THIN | ATTN__AHEAD | ATTN__IN_PLACE,
          ATTN__THIN | ATTN__AHEAD | ATTN__PACK_K, ATTN__THIN | ATTN__AHEAD | ATTN__PACK_K,
          ATTN__PACK_K | ATTN__PACK_V },
        /* plain rows of V end inside a panel: no vector may read past their end. The kernel for
           such columns (`part`) is slow, so only few rows read V in place. */
        { ATTN__THIN | ATTN__IN_PLACE, ATTN__THIN | ATTN__AHEAD | ATTN__IN_PLACE,
          ATTN__THIN | ATTN__AHEAD | ATTN__PACK_K | ATTN__PACK_V,
          ATTN__THIN | ATTN__AHEAD | ATTN__PACK_K | ATTN__PACK_V, ATTN__PACK_K | ATTN__PACK_V }
    };
    const int ends_inside = !call->kv && call->v_head_dim % 16;
    int i;
    memcpy(call->route, routes[call->k_in_panels ? 0 : ends_inside ? 2 : 1], ATTN__ROUTES);
    for (i = attn__widens_from(call, call->k_stored); call->k_in_panels && i < ATTN__ROUTES; i++)
        call->route[i] = (unsigned char)(call->route[i] | ATTN__WIDEN_K);
    for (i = attn__widens_from(call, call->v_stored); i < ATTN__ROUTES; i++)
        call->route[i] = (unsigned char)(call->route[i] | ATTN__WIDEN_V);
}

/* Returns the route of this many rows of a K/V head. */
ATTN__INLINE unsigned attn__route_of(const attn__call *call, int rows)
{
    return call->route[attn__route_index(rows)];
}

/* Returns the max number of K/V heads of a thin block whose rows take this route: the chunk that it
   widens or packs must stay in a CPU cache. It also bounds those of a
   thick block (attn__most_thick_heads). */
static int attn__heads_of(const attn__call *call, unsigned route)
{
    const int all = attn__clamp(call->kv_heads, 1, ATTN__BLOCK_HEADS);
    if (route & (ATTN__WIDEN_K | ATTN__WIDEN_V))
        return attn__clamp(ATTN__WIDENED_WIDTH / call->head_dim, 1, all);
    if (route & ATTN__PACK_K) return attn__clamp(ATTN__PACKED_WIDTH / call->head_dim, 1, all);
    return all;
}

/* ---- the plan: slots and the workspace ------------------------------------------------------- */

/* Reserves n * width floats of a slot, in whole cache lines. Returns their offset. */
static size_t attn__reserve(unsigned long long *size, int n, unsigned long long width)
{
    const unsigned long long at = *size;
    *size += ((unsigned)n * width + 15) / 16 * 16 + ATTN__FENCE;
    return (size_t)at;
}

/* Returns the max number of K/V heads of a thick block (attn__cut_heads). A slot has room for them
   whether or not a mask is given. */
static int attn__most_thick_heads(const attn__call *call)
{
    return attn__min(2, attn__heads_of(call, call->route[ATTN__ROUTES - 1]));
}

/* Lays out a slot: with room for blocks of up to `rows` rows per K/V head and every route that they
   take. Returns its floats, or SIZE_MAX if it is not addressable. The sum fits 64 bits: a block has
   at most ATTN__MOST_ROWS rows, and at most 48 if they are wide. */
static size_t attn__plan_slot(attn__call *call, int rows)
{
    const unsigned thin = attn__route_of(call, attn__min(rows, ATTN__THIN_ROWS));
    const unsigned most = attn__route_of(call, rows);
    const int kv_heads = attn__clamp(call->kv_heads, 1, ATTN__BLOCK_HEADS);
    const int in_thin = attn__min(kv_heads * attn__min(rows, ATTN__THIN_ROWS), call->block_rows);
    const int thick_heads = rows > ATTN__THIN_ROWS ? attn__most_thick_heads(call) : 1;
    const int in_thick = attn__min(thick_heads * rows, call->block_rows);
    const int all = attn__max(in_thin, in_thick), band = attn__min(all, ATTN__BAND);
    const unsigned head_dim = (unsigned)call->head_dim, v_width = (unsigned)call->v_width;
    const unsigned k_width = (unsigned)call->k_width;
    unsigned long long size = 0;
    attn__offsets *at = &call->at;
    if (attn__is_scalar(call->kernels)) {         /* it needs only `empty` and `block` */
        (void)attn__reserve(&size, 1, offsetof(attn__slot, view) / sizeof(float) + 1);
        return (size_t)size;
    }
    (void)attn__reserve(&size, 1, sizeof(attn__slot) / sizeof(float) + 1);
    at->q = attn__reserve(&size, all, head_dim);
    at->q_scale = at->q_bytes = (size_t)size;
    if (call->k_stored == ATTN_Q8) {
        at->q_scale = attn__reserve(&size, all, 1);
        at->q_bytes = attn__reserve(&size, all, (unsigned)call->q_row / sizeof(float));
    }
    at->o = attn__reserve(&size, all, v_width);
    at->M = attn__reserve(&size, all + ATTN__PANEL, 1);
    at->L = attn__reserve(&size, all + ATTN__PANEL, 1);
    at->row = attn__reserve(&size, all, (sizeof(attn__rowref) + 3) / sizeof(float));
    at->seen = attn__reserve(&size, all, 1);
    at->scores = attn__reserve(&size, band, ATTN__CHUNK);
    at->visible = attn__reserve(&size, band, ATTN__CHUNK);
    at->chains = attn__reserve(&size, band, v_width);
    at->v_rows = at->k = at->v = (size_t)size;
    if (most & ATTN__WIDEN_V)
        at->v_rows = attn__reserve(&size, ATTN__CHUNK, (unsigned long long)
            attn__heads_of(call, most) * attn__kv_v_width(&call->kv->shape));
    else if (call->v_stored == ATTN_Q8)
        at->v_rows = attn__reserve(&size, ATTN__CHUNK, 16u * ATTN__WIDENED_PANELS);
    if (most & (ATTN__PACK_K | ATTN__WIDEN_K))
        at->k = attn__reserve(&size, call->chunk_keys,
                              (unsigned long long)attn__heads_of(call, most) * k_width);
    if (most & ATTN__PACK_V)
        at->v = attn__reserve(&size, attn__max(thick_heads, thin & ATTN__PACK_V
                                               ? attn__heads_of(call, thin) : 1),
                              (unsigned long long)ATTN__CHUNK * v_width);
    /* These products can wrap only if no chunk is packed, or the slot is not addressable. */
    call->k_head = (size_t)call->chunk_keys * k_width;
    call->v_head = (size_t)ATTN__CHUNK * v_width;
    return size < (size_t)-1 ? (size_t)size : (size_t)-1;
}

/* Returns the beginning of a slot. */
ATTN__INLINE attn__slot *attn__slot_at(const attn__call *call, int slot)
{
    return (attn__slot *)(void *)(call->slots + (size_t)slot * call->slot_floats);
}

/* Returns 1 if rows * each < limit, approximately: an even `each` counts as one more, because 0
   cannot divide. Integer arithmetic: rounding a double would raise an exception flag of the
   caller. */
static int attn__below(unsigned long long rows, unsigned long long each, unsigned long long limit)
{
    return limit > 0 && rows <= (limit - 1) / (each | 1u);
}

/* Returns 1 if `each` operations for each of `rows` rows are too few for threads. */
static int attn__is_little(unsigned long long rows, unsigned long long each)
{
    return attn__below(rows, each, (unsigned long long)(ATTN_SERIAL_FLOPS));
}

/* Returns 1 if `each` multiply-adds for each of `rows` rows take at most about 100 us: waking a
   thread costs about as much as it would save. Callers count at least ATTN__SHORT_ROWS rows over
   the same operand: fewer take the same time, that of reading it. */
enum { ATTN__SHORT_ROWS = 4, ATTN__SHORT_WORK = 3000000 };
static int attn__is_short(unsigned long long rows, unsigned long long each)
{
    return attn__below(rows, each, ATTN__SHORT_WORK);
}

/* Returns the number of threads that a call over n_k keys can use. Waking one costs microseconds,
   so a call with too little work runs on the caller's thread, with the same bits. */
static int attn__threads(const attn__call *call, int n_k)
{
    unsigned long long rows, dims;        /* batch times heads fits an int: no product wraps */
    if (!call->exec || call->exec->width <= 1) return 1;
    rows = (unsigned long long)(call->batch * call->heads) * (unsigned)call->n_q;
    dims = (unsigned long long)call->head_dim + (unsigned)call->v_head_dim;
    if (attn__is_little(rows, 2 * dims * (unsigned)n_k)) return 1;
    return attn__min(call->exec->width, INT_MAX / 4);
}

/* Returns 1 if the call is too short to wake a thread for it: `entries` entries (those that share
   keys count as one) of up to `all` rows per K/V head. */
static int attn__call_is_short(const attn__call *call, int entries, int all)
{
    const unsigned long long rows = (unsigned long long)(entries * call->kv_heads) *
                                    (unsigned)attn__max(all, ATTN__SHORT_ROWS);
    return attn__is_short(rows, (unsigned long long)call->chunks * ATTN__CHUNK *
                                ((unsigned)call->head_dim + (unsigned)call->v_head_dim));
}

/* Returns 1 if a block of a call with this many chunks may be divided into splits of its chunks,
   for threads that would idle. */
ATTN__INLINE int attn__may_split(const attn__call *call, long long chunks)
{
    return chunks > 1 && !attn__is_scalar(call->kernels);
}

/* Returns the max number of blocks that `all` rows of a K/V head are cut into: a block has at least
   48 of them, or all. */
ATTN__INLINE long long attn__most_blocks(long long all)
{
    return (all + ATTN__BAND - 1) / ATTN__BAND;
}

/* Sets the size of the workspace. It depends only on sizes, and never shrinks when they grow: the
   workspace of the largest call suffices for all. There is room for the tasks of this and every
   smaller call, each with the largest slot, and for the states of the largest split. all: rows of
   an entry per K/V head; pairs: entries times K/V heads; n_k: keys that an entry may have. */
static void attn__plan_memory(attn__call *call, int all, long long pairs, int n_k)
{
    const int threads = attn__threads(call, n_k);
    const long long together = (long long)call->batch * attn__min(all, ATTN__THIN_ROWS);
    const int shared = together < call->shared_rows ? (int)together : call->shared_rows;
    const long long chunks = (n_k + ATTN__CHUNK - 1) / ATTN__CHUNK;
    const long long blocks = attn__most_blocks(all);
    /* At most; a call with parts has splits of all its blocks. */
    const long long items = pairs * (call->parts ? chunks * blocks
                                                 : chunks > blocks ? chunks : blocks);
    const size_t slots = (size_t)(items < 1 ? 1 : items < threads ? items : threads);
    size_t states = 0, bytes;
    call->slot_floats = attn__plan_slot(call, attn__max(attn__clamp(all, 1, call->block_rows),
                                                        shared));
    /* If blocks are split there is at most one per thread (attn__thin_splits). */
    if (slots > 1 && attn__may_split(call, chunks)) {
        const long long most = (long long)threads * ATTN__SPLIT_ROWS;
        const long long every = pairs * attn__min(all, ATTN__SPLIT_ROWS);
        if (attn__mul(ATTN_STATE(call->v_head_dim), (size_t)chunks, &states) ||
            attn__mul(states, (size_t)(every < most ? every : most), &states)) return;
    }
    /* Three ints and an entry for each of the batch, and one int more. */
    if (attn__mul((size_t)call->batch, 3 * sizeof(int) + sizeof(attn__entry), &bytes) ||
        bytes > ATTN__BYTES_MAX - 128) return;
    call->table_floats = attn__up(bytes / sizeof(float) + 1, 16) + ATTN__FENCE;
    if (attn__mul(call->slot_floats, slots, &bytes) || attn__add(bytes, states, &bytes) ||
        attn__add(bytes, call->table_floats, &bytes) || attn__mul(bytes, sizeof(float), &bytes) ||
        bytes > ATTN__BYTES_MAX - 64) return;
    call->tasks = attn__min((int)slots, call->tasks);
    call->bytes = bytes + 64;             /* the start may be unaligned */
}

/* Sets how K and V are stored, and the widths that follow. */
static void attn__plan_formats(attn__call *call)
{
    const attn_kv_args *c = call->kv ? &call->kv->shape : NULL;
    call->k_in_panels = c && !c->v_in_k;
    call->k_stored = c ? c->k_storage : ATTN_F32;
    call->v_stored = c ? c->v_storage : ATTN_F32;
    call->k_width = call->k_in_panels ? (int)attn__padded(call->head_dim, call->k_stored)
                                      : call->head_dim;
    call->q_row = call->k_in_panels && call->k_stored == ATTN_Q8
        ? call->k_width + (int)sizeof(int) : 0;
    call->v_width = (int)attn__up((size_t)call->v_head_dim, 16);
}

/* Plans a checked call: routes, parts of a slot, size of the workspace. */
static void attn__call_plan(attn__call *call)
{
    const int n_k = call->kv ? call->kv->shape.capacity : call->n_k;     /* a cache may grow */
    const int held = attn__min(call->n_k, n_k);
    const int widest = attn__max(call->head_dim, call->v_head_dim);
    const long long all = (long long)call->group * call->n_q;
    const long long pairs = (long long)call->batch * call->kv_heads;

    attn__plan_formats(call);
    call->block_rows = attn__clamp(ATTN__BLOCK_FLOATS / widest / ATTN__BAND * ATTN__BAND,
                                   ATTN__BAND, ATTN__MOST_ROWS);
    call->shared_rows = 0;
    if (call->batch > 1 && (call->kv || call->k_map) && !attn__is_scalar(call->kernels))
        call->shared_rows = attn__min(ATTN__SHARED_ROWS, call->block_rows);
    call->chunks = (held + ATTN__CHUNK - 1) / ATTN__CHUNK;
    if (call->parts) call->chunks = attn__min(call->chunks, call->parts);
    call->chunk_keys = attn__min((int)attn__up((size_t)n_k, 16), ATTN__CHUNK);
    call->tasks = attn__threads(call, held);
    call->bytes = (size_t)-1;
    attn__plan_routes(call);
    /* The numbers of rows per K/V head and of items must fit an int, however blocks are cut. */
    if (all <= INT_MAX - 2 * call->block_rows && attn__most_blocks(all) * pairs <= INT_MAX / 4)
        attn__plan_memory(call, (int)all, pairs, n_k);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* Decides whether the masks of heads differ, and how many K/V heads a thick block has. If two heads
   read the same masks, the second one finds each part of them in a near cache: 2048 x 2048 then
   takes 0.94 of the time. Not if blocks would have fewer rows than a thick view. */
static void attn__cut_heads(attn__call *call)
{
    int x;
    call->by_head = call->rel_bias != NULL;
    for (x = 0; x < ATTN__ALL_MASKS; x++) call->by_head |= call->cells[x].step[1] != 0;
    call->thick_heads = call->arrays && !call->by_head && call->group == 1 &&
                        call->kv_heads % 2 == 0 && call->block_rows > 2 * ATTN__THIN_ROWS
                        ? attn__most_thick_heads(call) : 1;
}

/* Returns the splits of each block of the thin cut, for threads that would idle: 1 if there is more
   than one block per thread. Also 1 if entries share keys (attn__share leaves items for every
   thread: with splits, 4 beams on 2 threads take 1.0 to 1.2 times as long), and if some may be
   thick: thin.per_head is then ATTN__THIN_ROWS, above ATTN__SPLIT_ROWS. Blocks of entries without
   rows count here, because a set of states has room for them. Short calls are split for workers
   that still spin; calls with parts have attn__part_splits. */
static int attn__thin_splits(const attn__call *call, int entries)
{
    const long long blocks = (long long)call->batch * call->thin.head_blocks;
    if (call->tasks == 1 || call->parts || blocks > call->tasks || entries != call->batch ||
        call->thin.kv_heads * call->thin.per_head > ATTN__SPLIT_ROWS ||
        !attn__may_split(call, call->chunks))
        return 1;
    return attn__min(ATTN__SPLIT_ITEMS * call->tasks / (int)blocks, call->chunks);
}

/* Cuts thin entries, with up to `rows` per K/V head. K/V heads share a block as long as there are
   enough items for the threads. */
static void attn__cut_thin(attn__call *call, int entries, int rows)
{
    const unsigned route = attn__route_of(call, rows);
    const int threads = call->tasks;
    attn__cut *cut = &call->thin;
    long long items;
    /* If K in rows is read in place, all rows of a block should fit into one band, which goes
       through the keys in the order of their addresses. */
    const int room = (route & ATTN__IN_PLACE ? ATTN__BAND : call->block_rows) / rows;
    const long long each = call->is_short ? ATTN__SHORT_ITEMS : ATTN__THIN_ITEMS;

    cut->per_head = rows;
    /* Halves the heads of a block until there are enough items. If blocks can be split, each of
       their chunks counts as one. */
    for (cut->kv_heads = attn__clamp(room, 1, attn__heads_of(call, route));; cut->kv_heads /= 2) {
        cut->head_blocks = (call->kv_heads - 1) / cut->kv_heads + 1;
        cut->kv_heads = (call->kv_heads - 1) / cut->head_blocks + 1;  /* almost equal blocks */
        call->splits = attn__thin_splits(call, entries);
        if (threads == 1 || cut->kv_heads == 1) break;
        items = (long long)entries * cut->head_blocks;
        if (call->parts || call->splits > 1) items *= call->chunks;
        if (items >= each * threads) break;
    }
}

/* Cuts thick entries: smaller blocks if threads would idle, and of almost equal size, so that no
   thread waits for the largest. */
static void attn__cut_thick(attn__call *call, int entries, int all)
{
    const int threads = call->tasks;
    attn__cut *cut = &call->thick;
    const int heads = call->thick_heads;
    long long columns;                    /* blocks for the same rows */
    int blocks;

    cut->kv_heads = heads;
    cut->head_blocks = call->kv_heads / heads;
    columns = (long long)entries * cut->head_blocks;
    cut->per_head = attn__min(all, call->block_rows / heads);
    if (threads == 1) return;
    /* Each block packs K and V again, so blocks of up to 96 rows are not divided. */
    while (cut->per_head > 2 * ATTN__BAND &&
           ((all - 1) / cut->per_head + 1) * columns < (long long)ATTN__THICK_ITEMS * threads)
        cut->per_head = (cut->per_head / 2 + ATTN__BAND - 1) / ATTN__BAND * ATTN__BAND;
    /* The same number of blocks, in whole tiles. */
    blocks = (all - 1) / cut->per_head + 1;
    cut->per_head = attn__min(((all - 1) / blocks / ATTN__WHOLE_TILES + 1) * ATTN__WHOLE_TILES,
                              cut->per_head);
}

/* Cuts `entries` entries (those that share keys count as one) of up to `all` rows per K/V head. If
   entries have different numbers of rows, some may be thin and others thick. */
static void attn__cut_entries(attn__call *call, int entries, int all)
{
    attn__cut_thin(call, entries, attn__clamp(all, 1, ATTN__THIN_ROWS));
    if (!(attn__route_of(call, all) & ATTN__THIN)) attn__cut_thick(call, entries, all);
}

/* Returns the cut of entries that have this many rows per K/V head together. */
ATTN__INLINE const attn__cut *attn__cut_of(const attn__call *call, int rows)
{
    return attn__route_of(call, rows) & ATTN__THIN ? &call->thin : &call->thick;
}

/* Returns the splits of each block of a call with parts. */
static int attn__part_splits(const attn__call *call)
{
    const int blocks = call->first_block[call->batch];
    if (call->tasks == 1 || !attn__may_split(call, call->chunks)) return 1;
    return attn__clamp(ATTN__PART_ITEMS * call->tasks / attn__max(blocks, 1), 1, call->chunks);
}

/* ---- entries that read the same keys --------------------------------------------------------- */

ATTN__INLINE int attn__compare(int x, int y) { return (x > y) - (x < y); }

/* Returns the order of two entries: below 0, x first; 0: same keys in the first `most` pages.
   Entries with a common beginning become neighbours; those with fewer rows than n_q come last. */
static int attn__compare_keys(const attn__call *call, int x, int y, int most)
{
    const attn__entry *one = call->entry + x, *other = call->entry + y;
    const int pages = attn__min(one->n_pages, most), other_pages = attn__min(other->n_pages, most);
    int n, d = (one->rows < call->n_q) - (other->rows < call->n_q);
    if (d) return d;
    if (!call->kv) {
        d = attn__compare(one->kv, other->kv);
        return d ? d : attn__compare(one->start, other->start);
    }
    d = attn__compare(one->gap_from, other->gap_from);
    if (!d) d = attn__compare(one->gap_to, other->gap_to);
    for (n = 0; n < pages && n < other_pages && !d; n++)
        d = attn__compare(one->pages[n], other->pages[n]);
    return d ? d : pages - other_pages;
}

/* Sorts the entries by attn__compare_keys (Shell's sort: the time grows little faster than the
   batch). */
static void attn__sort_entries(const attn__call *call)
{
    const int n = call->batch;
    int step = 1, p, at, b;
    while (step < n / 3) step = 3 * step + 1;
    for (; step > 0; step /= 3)
        for (p = step; p < n; p++) {
            b = call->order[p];
            for (at = p; at >= step; at -= step) {
                if (attn__compare_keys(call, call->order[at - step], b, INT_MAX) <= 0) break;
                call->order[at] = call->order[at - step];
            }
            call->order[at] = b;
        }
}

/* Lets at most max_readers neighbours that begin with the same keys share blocks. Their later pages
   may differ: attn__view_next groups the readers of each. Returns the number of entries, counting
   those that share as one; *largest: max readers. */
static int attn__list_readers(const attn__call *call, int max_readers, int *largest)
{
    int p, n, x, entries = 0;
    *largest = 1;
    for (p = 0; p < call->batch; p += n, entries++) {
        const attn__entry *e = call->entry + call->order[p];
        /* with fewer rows than n_q, or without a key, an entry does not share */
        const int alone = e->rows < call->n_q || (call->kv && e->n_pages == 0);
        for (n = 1; n < max_readers && p + n < call->batch && !alone; n++)
            if (attn__compare_keys(call, e->b, call->order[p + n], 1) != 0) break;
        call->readers[p] = n;
        for (x = 1; x < n; x++) call->readers[p + x] = 0;
        *largest = attn__max(n, *largest);
    }
    return entries;
}

/* Returns the max readers of a block, if each has as many rows as the longest entry of the call:
   1 if these are not thin. */
static int attn__most_readers(const attn__call *call)
{
    const int each = call->group * call->n_q;
    if (!(attn__route_of(call, each) & ATTN__THIN)) return 1;
    return attn__clamp(call->shared_rows / each, 1, call->batch);
}

/* Lets entries that read the same keys go through them together, as if they were one entry with
   more rows: keys are read once for all of them. Only if enough blocks are left for the threads.
   Returns the number of entries, counting those that share as one; *largest: max readers. */
static int attn__share(const attn__call *call, int *largest)
{
    int most = attn__most_readers(call), entries = call->batch;
    *largest = 1;
    if (most == 1) return entries;
    attn__sort_entries(call);
    for (;; most = (*largest + 1) / 2) {
        entries = attn__list_readers(call, most, largest);
        if (*largest == 1 || call->tasks == 1) break;
        if ((long long)entries * call->kv_heads >= (long long)ATTN__SHARED_ITEMS * call->tasks)
            break;
    }
    if (*largest > 1) ATTN__COUNT(SHARED);
    return entries;
}

/* Returns a name for the route of an entry; together 1: of all entries, if they share keys. */
static const char *attn__way_of(const attn__call *call, int together)
{
    static const char *const name[] = { "thick", "thin", "thin, K in place" };
    const int readers = together ? attn__most_readers(call) : 1;
    const unsigned route = attn__route_of(call, readers * call->group * call->n_q);
    return name[route & ATTN__IN_PLACE ? 2 : route & ATTN__THIN ? 1 : 0];
}

/* ---- the call in memory ---------------------------------------------------------------------- */

/* Returns the rows of a place for each K/V head: those of all its readers. */
ATTN__INLINE int attn__place_rows(const attn__call *call, int p)
{
    return call->readers[p] * call->group * call->entry[call->order[p]].rows;
}

/* Numbers the blocks of every place: those of its rows, and at least one if padding must be
   written. */
static void attn__list_blocks(const attn__call *call)
{
    int p, blocks = 0;
    for (p = 0; p < call->batch; p++) {
        const int rows = attn__place_rows(call, p);
        const attn__cut *cut = attn__cut_of(call, rows);
        call->first_block[p] = blocks;
        if (rows > 0) blocks += ((rows - 1) / cut->per_head + 1) * cut->head_blocks;
        else if (call->readers[p] > 0 && call->padding) blocks += cut->head_blocks;
    }
    call->first_block[p] = blocks;
}

/* Decides where the states of chunks go. With carry_out and without parts, a block that is closed
   then stores those of its rows. */
static void attn__place_states(attn__call *call)
{
    if (call->parts) {
        call->splits = attn__part_splits(call);
        call->states_to = ATTN__TO_PARTS;
        call->states = call->carry_out;
        call->sets = call->parts;
        return;
    }
    call->states_to = call->splits > 1 ? ATTN__TO_WORKSPACE : ATTN__TO_ROWS;
    call->states = call->slots + call->slot_floats * (size_t)call->tasks;
    call->sets = call->chunks;
}

/* Divides the workspace at `at`: resolves the entries, finds those that share keys, cuts all into
   blocks, these into splits, and decides where states go. */
static void attn__call_place(attn__call *call, char *at)
{
    const int batch = call->batch;
    int b, entries, largest, all;
    at += (64 - ((size_t)at & 63)) & 63;
    call->entry = (attn__entry *)(void *)at;
    call->order = (int *)(void *)(call->entry + batch);
    call->readers = call->order + batch;
    call->first_block = call->readers + batch;
    call->slots = (float *)(void *)at + call->table_floats;
    ATTN__GUARD(call->slots - ATTN__FENCE, ATTN__FENCE, 1);
    for (b = 0; b < batch; b++) {
        attn__entry_at(call, b, call->entry + b);
        call->order[b] = b;
        call->readers[b] = 1;
    }
    attn__cut_heads(call);
    entries = attn__share(call, &largest);
    all = largest * call->group * call->n_q;
    call->is_short = call->tasks > 1 && attn__call_is_short(call, entries, all);
    attn__cut_entries(call, entries, all);
    attn__list_blocks(call);
    attn__place_states(call);
}

/* ---- opening a block ------------------------------------------------------------------------- */

/* Returns a part of a slot, and guards the fence before it. */
ATTN__INLINE float *attn__part(float *base, size_t at)
{
    ATTN__GUARD(base + at - ATTN__FENCE, ATTN__FENCE, 1);
    return base + at;
}

/* Prepares a slot for a task: what all its blocks share. */
static void attn__slot_open(const attn__call *call, int number)
{
    attn__slot *slot = attn__slot_at(call, number);
    attn__block *block = &slot->block;
    const attn__offsets *at = &call->at;
    float *base = (float *)(void *)slot;
    block->call = call;
    block->slot = slot;
    block->place = 0;
    if (attn__is_scalar(call->kernels)) return;
#define ATTN__PART(type, name) block->mem.name = (type *)(void *)attn__part(base, at->name);
    ATTN__SLOT_PARTS(ATTN__PART)
#undef ATTN__PART
    ATTN__GUARD(base + call->slot_floats - ATTN__FENCE, ATTN__FENCE, 1);
}

/* Sets the entries, heads and rows of block `number`. A task takes blocks in ascending order, so
   the search begins at the place of its last one. */
static void attn__block_at(attn__block *block, int number)
{
    const attn__call *call = block->call;
    const attn__cut *cut;
    int n, p = block->place, all, blocks;
    while (call->first_block[p + 1] <= number) p++;
    block->place = p;
    block->entry = call->entry + call->order[p];
    block->readers = call->readers[p];
    block->each = call->group * block->entry->rows;
    all = attn__place_rows(call, p);
    cut = attn__cut_of(call, all);

    n = number - call->first_block[p];
    blocks = (call->first_block[p + 1] - call->first_block[p]) / cut->head_blocks;
    block->kv_head = n / blocks * cut->kv_heads;
    block->kv_heads = attn__min(cut->kv_heads, call->kv_heads - block->kv_head);
    /* The last rows come first: with causal masks they take longest, and shorter blocks then fill
       the gaps. The block with the last rows also writes the padding after them. */
    block->first_row = (blocks - 1 - n % blocks) * cut->per_head;
    block->per_head = attn__clamp(all - block->first_row, 0, cut->per_head);
    block->rows = block->per_head * block->kv_heads;
}

/* Returns the entry of row r of a K/V head. */
ATTN__INLINE const attn__entry *attn__block_entry(const attn__block *block, int r)
{
    const int reader = block->readers == 1 ? 0 : (block->first_row + r) / block->each;
    return block->call->entry + block->call->order[block->place + reader];
}

/* Returns the end of the reader of row r: the index after its last row, among those of a K/V
   head. */
ATTN__INLINE int attn__reader_end(const attn__block *block, int r)
{
    if (block->readers == 1) return block->per_head;
    r += block->each - (block->first_row + r) % block->each;
    return attn__min(r, block->per_head);
}

/* Sets the rows of a block. By position, rows with the same index in different heads see the same
   keys; only their arrays may differ. */
static void attn__block_rows(attn__block *block)
{
    const attn__call *call = block->call;
    const int group = call->group, from = block->kv_head * group;
    const int arrays = block->arrays || call->alibi_slopes || call->rel_bias;
    attn__rowref *row = block->mem.row;
    int r = 0;
    while (r < block->per_head) {
        const attn__entry *e = attn__block_entry(block, r);
        const int to = attn__reader_end(block, r);
        const int at = (block->first_row + r) % block->each;      /* row of the reader */
        int i = at / group, h = at % group;
        for (; r < to; r++, row++) {
            attn__row_set(call, e, from + h, i, row);
            if (++h == group) { h = 0; i++; }
        }
    }
    for (; r < block->rows; r++, row++) {
        *row = row[-block->per_head];
        row->h += group;
        row->q += group * call->q[2];
        row->out += group * call->out[2];
        if (arrays) attn__row_arrays(call, call->entry[row->b].start, row);
    }
}

/* Sets the chunks that the rows of a block see by position, and whether every row sees every
   key. */
static void attn__block_ranges(attn__block *block)
{
    int r, lo = INT_MAX, hi = 0, least = INT_MAX, keys = 0, begin = 0;
    for (r = 0; r < block->per_head; r++) {
        const attn__rowref *row = block->mem.row + r;
        keys = attn__max(keys, block->call->entry[row->b].keys);
        begin = attn__max(begin, row->from);
        least = attn__min(least, row->to);
        if (row->from >= row->to) continue;
        lo = attn__min(lo, row->from);
        hi = attn__max(hi, row->to);
    }
    block->sees_all = begin == 0 && least == keys;
    block->chunk = block->end = 0;
    if (lo < hi) attn__chunks_of(block->entry, lo, hi, &block->chunk, &block->end);
}

/* Returns 1 if one of n numbers of rel_bias is -inf. */
static int attn__has_hidden(const attn__kernels *kernels, const float *cells, ptrdiff_t n)
{
    attn__row row;
    memset(&row, 0, sizeof row);
    for (row.mask = cells; n > 0; row.mask += ATTN__CHUNK, n -= ATTN__CHUNK) {
        attn__keys seen;
        kernels->find_visible(&row, n < ATTN__CHUNK ? (int)n : (int)ATTN__CHUNK, &seen);
        if (~(seen.word[0] & seen.word[1])) return 1;
    }
    return 0;
}

/* Returns 1 if rel_bias has -inf at a distance between a row of the block and a key that the
   positions of the block let it see. */
static int attn__rel_hides(const attn__block *block)
{
    const attn__call *call = block->call;
    const long long extent = call->rel_extent;
    long long lo = extent, hi = -extent;
    const int from = block->kv_head * call->group, to = from + block->kv_heads * call->group;
    int r, h;
    for (r = 0; r < block->per_head; r++) {
        const attn__rowref *row = block->mem.row + r;
        const long long first = row->from - row->position, last = row->to - 1 - row->position;
        if (first > last) continue;
        if (first < lo) lo = first;
        if (last > hi) hi = last;
    }
    lo = lo < -extent ? -extent : lo;             /* farther keys use an end of the table */
    hi = hi > extent ? extent : hi;
    for (h = from; h < to; h++)
        if (attn__has_hidden(call->kernels, call->rel_bias + h * (2 * (ptrdiff_t)extent + 1) +
                             (ptrdiff_t)(extent + lo), (ptrdiff_t)(hi - lo) + 1))
            return 1;
    return 0;
}

/* Rounds the queries of a block to 8 bits, as the keys are: q becomes integers and a scale. */
static void attn__block_round_q(attn__block *block)
{
    const attn__call *call = block->call;
    const size_t n = (size_t)call->head_dim;
    signed char row[ATTN__Q8_WIDEST + 4], *bytes = block->mem.q_bytes;     /* and padding */
    float *q = block->mem.q;
    int r, sum;
    memset(row + n, 0, 4);
    for (r = 0; r < block->rows; r++, q += n, bytes += call->q_row) {
        block->mem.q_scale[r] = call->kernels->round_row(row, q, n, &sum);
        if (!call->q_row) {
            call->kernels->widen(q, row, n, ATTN_Q8);
            continue;
        }
        memcpy(bytes, &sum, sizeof sum);
        memcpy(bytes + sizeof sum, row, (size_t)call->k_width);
    }
}

/* Returns 1 if the call writes weights of one of the block's heads. */
static int attn__block_weighs(const attn__block *block)
{
    const attn__call *call = block->call;
    const int from = block->kv_head * call->group, to = from + block->kv_heads * call->group;
    const int *head = call->weights_heads;
    int n = call->planes;
    if (!call->weights || !head) return call->weights != NULL;
    while (n > 0 && *head < from) { head++; n--; }
    return n > 0 && *head < to;
}

/* Opens block `number`: its rows, and which keys each sees by position. Returns 0 if it has no
   rows. */
static int attn__block_open(attn__block *block, int number)
{
    attn__block_at(block, number);
    if (block->rows == 0) return 0;
    block->arrays = block->call->arrays;
    block->weighs = attn__block_weighs(block);
    attn__block_rows(block);
    attn__block_ranges(block);
    return 1;
}

/* Prepares what the chunks of an open block need: q * scale, and whether rel_bias hides keys. */
static void attn__block_queries(attn__block *block)
{
    const attn__call *call = block->call;
    call->kernels->scale(block->mem.q, block->mem.row, block->rows, call->head_dim, call->scale);
    if (call->k_stored == ATTN_Q8) attn__block_round_q(block);
    if (call->rel_bias && attn__rel_hides(block)) block->arrays = 1;
}

/* Starts the states of the rows: empty, or the caller's. Called before the first chunk, or before
   every chunk if each stores its own states. */
static void attn__block_begin(const attn__block *block, const float *carry_in)
{
    const attn__call *call = block->call;
    const attn__parts *mem = &block->mem;
    int r;
    memset(mem->seen, 0, (size_t)block->rows * sizeof(int));
    for (r = 0; r < block->rows; r++) mem->M[r] = -attn__inf();
    memset(mem->M + block->rows, 0, ATTN__PANEL * sizeof(float));
    memset(mem->L, 0, (size_t)(block->rows + ATTN__PANEL) * sizeof(float));
    memset(mem->o, 0, (size_t)block->rows * (size_t)call->v_width * sizeof(float));
    for (r = 0; r < block->rows && carry_in; r++)
        mem->seen[r] = attn__carry_get(carry_in + attn__row_state(call, mem->row + r), mem->M + r,
                                       mem->L + r, mem->o + (ptrdiff_t)r * call->v_width,
                                       call->v_head_dim);
}

/* ---- views: visible keys --------------------------------------------------------------------- */

/* Returns the set of keys lo <= j < hi. */
static attn__keys attn__keys_between(int lo, int hi)
{
    attn__keys keys;
    int x;
    for (x = 0; x < 2; x++) {
        const int from = attn__clamp(lo - 64 * x, 0, 64), to = attn__clamp(hi - 64 * x, 0, 64);
        const unsigned long long below = to < 64 ? (1ull << to) - 1 : ~0ull;
        keys.word[x] = from < to ? below & ~((1ull << from) - 1) : 0;
    }
    return keys;
}

ATTN__INLINE int attn__keys_has(const attn__keys *keys, int j)
{
    return (int)(keys->word[j / 64] >> j % 64 & 1u);
}

/* Returns the number of bits set: keys of a word, or panels. */
static int attn__count_bits(unsigned long long word)
{
    int n = 0;
    for (; word; word &= word - 1) n++;
    return n;
}

/* Returns 1 if all keys of `part` are in `whole`. */
ATTN__INLINE int attn__keys_within(const attn__keys *part, const attn__keys *whole)
{
    return !(part->word[0] & ~whole->word[0]) && !(part->word[1] & ~whole->word[1]);
}

/* Returns the panels with at least one of the keys. */
static unsigned attn__panels_of(const attn__keys *keys)
{
    unsigned panels = 0;
    int x;
    for (x = 0; x < 2; x++) {
        const unsigned long long word = keys->word[x];
        const unsigned four = (word & 0xffffu ? 1u : 0) | (word >> 16 & 0xffffu ? 2u : 0) |
                              (word >> 32 & 0xffffu ? 4u : 0) | (word >> 48 ? 8u : 0);
        panels |= four << 4 * x;
    }
    return panels;
}

/* Returns the panels with at least one of the keys lo <= j < hi. */
ATTN__INLINE unsigned attn__panels_between(int lo, int hi)
{
    return lo < hi ? (2u << (hi - 1) / ATTN__PANEL) - (1u << lo / ATTN__PANEL) : 0;
}

/* Finds the keys that rows see by position: of the view, and of each tile. */
static void attn__see_positions(const attn__block *block, const attn__view *view,
                                attn__visibility *sees)
{
    const attn__rowref *row = block->mem.row + view->from;
    const int rows = view->tile_rows, tiles = (view->per_head - 1) / rows + 1, keys = view->keys;
    int t, r = 0, least = keys;           /* keys of the shortest range */
    sees->lo = keys;
    sees->hi = 0;
    for (t = 0; t < tiles; t++) {
        const int end = block->sees_all ? 0 : attn__min(r + rows, view->per_head);
        int lo = block->sees_all ? 0 : keys, hi = block->sees_all ? keys : 0;
        for (; r < end; r++, row++) {
            int from, to;
            attn__row_range(row, view->first_key, 0, keys, &from, &to);
            least = attn__min(least, to - from);
            if (from == to) continue;
            lo = attn__min(lo, from);
            hi = attn__max(hi, to);
        }
        sees->tile_panels[t] = (unsigned char)attn__panels_between(lo, hi);
        sees->tile_lo[t] = (unsigned char)lo;
        sees->tile_hi[t] = (unsigned char)hi;
        sees->lo = attn__min(sees->lo, lo);
        sees->hi = attn__max(sees->hi, hi);
    }
    sees->partial = least < sees->hi - sees->lo;
    sees->panels = attn__panels_between(sees->lo, sees->hi);
}

/* Results for mask, bias, keep and rel_bias of a chunk, reused while rows share them. */
typedef struct attn__scan {
    const attn__rowref *last;             /* the row scanned last, or NULL */
    attn__keys cells;                     /* keys that its arrays leave visible */
    attn__keys all;                       /* keys that some row sees by position */
    attn__keys head_sees;                 /* keys seen so far by rows of this K/V head */
} attn__scan;

/* Returns 1 if two rows have the same arrays. */
static int attn__same_arrays(const attn__rowref *x, const attn__rowref *y)
{
#define ATTN__EQUAL(name, type, heads) x->name == y->name &&
    return ATTN__MASKS(ATTN__EQUAL) x->rel == y->rel && (!x->rel || x->position == y->position);
#undef ATTN__EQUAL
}

/* Scans the rows of tile t of a view's K/V head. Adds the keys that they see to scan->head_sees,
   and returns some of them: at least one of each panel that they see. Starts with the last row,
   which often sees all of them, and ends when no more can be found. Arrays that heads or rows share
   are scanned once. */
static attn__keys attn__scan_rows(const attn__block *block, const attn__view *view,
                                  attn__scan *scan, int local, int t)
{
    const attn__visibility *sees = &view->sees;
    const int first = t * view->tile_rows;
    const int last = attn__min(first + view->tile_rows, view->per_head);
    const attn__rowref *rows = block->mem.row + local * block->per_head + view->from;
    attn__keys seen = { { 0, 0 } };
    int r, x;
    for (r = last - 1; r >= first; r--) {
        const attn__row row = attn__row_at(rows + r, view->first_key, sees->lo, sees->hi,
                                           view->keys);
        const attn__keys range = attn__keys_between(row.lo, row.hi);
        attn__keys see;
        if (!scan->last || !attn__same_arrays(scan->last, rows + r)) {
            block->call->kernels->find_visible(&row, sees->hi, &scan->cells);
            scan->last = rows + r;
        }
        for (x = 0; x < 2; x++) {
            see.word[x] = range.word[x] & scan->cells.word[x];
            seen.word[x] |= see.word[x];
            scan->head_sees.word[x] |= see.word[x];
        }
        if (!(see.word[0] | see.word[1])) continue;
        if (attn__panels_of(&seen) == sees->tile_panels[t] &&
            attn__keys_within(&scan->all, &scan->head_sees))
            break;
    }
    return seen;
}

/* Shrinks the range to the keys that are seen: first to whole panels, then to keys. */
static void attn__see_less(attn__visibility *sees)
{
    int lo = sees->lo, last = sees->hi - 1;
    while (lo <= last && !attn__keys_has(&sees->keys, lo))
        lo += sees->panels >> lo / ATTN__PANEL & 1u ? 1 : ATTN__PANEL - lo % ATTN__PANEL;
    while (lo <= last && !attn__keys_has(&sees->keys, last))
        last -= sees->panels >> last / ATTN__PANEL & 1u ? 1 : last % ATTN__PANEL + 1;
    sees->lo = lo;
    sees->hi = last + 1;
}

/* Lists the keys that are seen, if they are few: at most ATTN__LISTED, and at most four times as
   many as seen panels. A row that sees 1 % of 4096 keys then takes 0.5 of the time. */
static void attn__see_listed(attn__visibility *sees)
{
    const int n = attn__count_bits(sees->keys.word[0]) + attn__count_bits(sees->keys.word[1]);
    int j;
    if (n > ATTN__LISTED || n > 4 * attn__count_bits(sees->panels)) return;
    for (j = sees->lo; j < sees->hi; j++)
        if (attn__keys_has(&sees->keys, j))
            sees->listed[sees->n_listed++] = (unsigned char)(j - sees->lo);
}

/* Removes the keys that mask, keep, bias and rel_bias hide. */
static void attn__see_arrays(const attn__block *block, const attn__view *view,
                             attn__visibility *sees)
{
    const attn__call *call = block->call;
    attn__keys some = { { 0, 0 } }, every, between;
    attn__scan scan;
    int local, t, x;

    scan.last = NULL;
    scan.cells = some;
    scan.all = every = attn__keys_between(sees->lo, sees->hi);
    for (local = 0; local < (call->by_head ? block->kv_heads : 1); local++) {
        memset(&scan.head_sees, 0, sizeof scan.head_sees);
        for (t = (view->per_head - 1) / view->tile_rows; t >= 0; t--) {
            attn__keys seen;
            if (!sees->tile_panels[t]) continue;
            seen = attn__scan_rows(block, view, &scan, local, t);
            if (!(view->route & ATTN__THIN))
                sees->tile_panels[t] = (unsigned char)attn__panels_of(&seen);
        }
        for (x = 0; x < 2; x++) {
            some.word[x] |= scan.head_sees.word[x];
            every.word[x] &= scan.head_sees.word[x];
        }
    }
    sees->keys = some;
    sees->panels = attn__panels_of(&some);
    attn__see_less(sees);
    between = attn__keys_between(sees->lo, sees->hi);
    sees->gaps = !attn__keys_within(&between, &every);
    if (view->per_head <= ATTN__FEW_ROWS) attn__see_listed(sees);
}

/* Finds the keys of a chunk that the rows of a view see: by position, then by arrays. K is read by
   whole seen panels, or in place for the listed keys only. V that arrays hide from every row may be
   uninitialised: it is not read, or only widened. */
static void attn__see(const attn__block *block, attn__view *view)
{
    attn__visibility *sees = &view->sees;
    sees->gaps = sees->n_listed = 0;
    attn__see_positions(block, view, sees);
    if (!block->arrays || !sees->panels) return;
    sees->partial = 1;
    attn__see_arrays(block, view, sees);
}

/* Moves the view to the next readers that read the same page of this chunk. Returns 0 if none are
   left. view->keys is 0 if all these readers end before the chunk. */
static int attn__view_next(const attn__block *block, attn__view *view)
{
    int r = view->from + view->per_head;
    if (r == block->per_head) return 0;
    view->from = r;
    view->page = attn__chunk_page(attn__block_entry(block, r), view->chunk);
    view->keys = 0;
    for (; r < block->per_head; r = attn__reader_end(block, r)) {
        const attn__entry *e = attn__block_entry(block, r);
        if (attn__chunk_page(e, view->chunk) != view->page) break;
        view->keys = attn__max(view->keys, e->keys - view->first_key);
    }
    view->per_head = r - view->from;
    view->keys = attn__min(view->keys, ATTN__CHUNK);
    return 1;
}

/* Sets how the rows of a view go through the chunk, and finds the keys that they see. Returns 0 if
   there are none. */
static int attn__view_open(const attn__block *block, attn__view *view)
{
    const attn__call *call = block->call;
    const unsigned route = attn__route_of(call, view->per_head);
    const int thin = (route & ATTN__THIN) != 0;
    if (view->keys == 0) return 0;
    view->route = route;
    view->slices = (route & ATTN__IN_PLACE) && !call->kv && view->per_head > 1 &&
                   block->kv_heads > 1 && call->v[2] < call->v[1];
    view->tile_rows = thin ? view->per_head : call->kernels->rows;
    view->band_rows = thin ? view->per_head : 4 * call->kernels->rows;
    view->band_heads = thin ? ATTN__BAND / view->per_head : 1;
    attn__see(block, view);
    return view->sees.panels != 0;
}

/* ---- views: where K and V are ---------------------------------------------------------------- */

/* Returns row `key` (counted from entry->start) of K or V in place, for the first head of the
   block. */
static const float *attn__plain_row(const float *rows, const ptrdiff_t *step,
                                    const attn__block *block, int key)
{
    return rows + block->kv_head * step[2] + (block->entry->start + key) * step[1];
}

/* Widens K or V of a chunk for every head of the block: only seen panels, and no key from `end` on.
   Heads are then `to_head` floats apart, and the source refers to these floats. */
static void attn__widen_source(const attn__block *block, const attn__view *view,
                               attn__source *from, int end, float *to, ptrdiff_t to_head)
{
    const attn__kernels *kernels = block->call->kernels;
    int local, lo, hi;
    for (local = 0; local < block->kv_heads; local++)
        for (lo = hi = 0; attn__next_run(view->sees.panels, &lo, &hi);) {
            float *put = to + local * to_head + lo * from->step;
            const void *get = attn__source_at(from, local, lo * from->step);
            const size_t n = (size_t)((attn__min(hi, end) - lo) * from->step);
            kernels->widen(put, get, n, from->stored);
        }
    from->at = to;
    from->head = to_head * (ptrdiff_t)sizeof(float);
    from->stored = ATTN_F32;
}

/* Packs K of the chunk, which is in rows, for every head of the block: only the seen panels. */
static void attn__pack_k(const attn__block *block, attn__view *view)
{
    const attn__call *call = block->call;
    const ptrdiff_t head_dim = call->head_dim;
    int local;
    for (local = 0; local < block->kv_heads; local++) {
        const float *k = (const float *)attn__source_at(&view->k, local, 0);
        float *to = block->mem.k + (size_t)local * call->k_head;
        int lo = 0, hi = 0;
        while (attn__next_run(view->sees.panels, &lo, &hi))
            call->kernels->pack_k(to + lo * head_dim, k + lo * view->k.step, view->k.step,
                                  attn__min(hi, view->keys) - lo, (int)head_dim);
    }
    view->k.at = block->mem.k;
    view->k.step = head_dim;
    view->k.head = (ptrdiff_t)(call->k_head * sizeof(float));
}

/* Packs V of the chunk for every head of the block. V of keys that no row needs is not read, but
   set to 0 (8 bits: it is packed). Returns bit `local` if V of the head, in floats, has a NaN or
   infinity. */
static unsigned attn__pack_v(const attn__block *block, attn__view *view)
{
    const attn__call *call = block->call;
    const attn__visibility *sees = &view->sees;
    unsigned char needed[ATTN__CHUNK];
    unsigned not_finite = 0;
    int local, j;
    for (j = sees->lo; j < sees->hi && sees->gaps; j++)
        needed[j] = (unsigned char)attn__keys_has(&sees->keys, j);
    for (local = 0; local < block->kv_heads; local++) {
        const void *v = attn__source_at(&view->v, local, 0);
        float *to = block->mem.v + (size_t)local * call->v_head;
        int run_lo = 0, run_hi = 0;
        while (attn__next_run(sees->panels, &run_lo, &run_hi)) {
            const int lo = attn__max(run_lo, sees->lo), hi = attn__min(run_hi, sees->hi);
            ATTN_ASSERT(lo < hi);         /* a panel of the set has a key that is seen */
            if (view->v.stored == ATTN_Q8) {
                call->kernels->pack_bytes(to + lo * 16,
                                          (const signed char *)v + lo * view->v.step,
                                          view->v.step, hi - lo, call->v_width / 16);
                continue;
            }
            not_finite |= (unsigned)call->kernels->pack_v(
                to + lo * 16, (const float *)v + lo * view->v.step, view->v.step, hi - lo,
                call->v_head_dim,
                sees->gaps ? needed + lo : NULL) << local;
        }
    }
    view->v.at = block->mem.v;
    view->v.head = (ptrdiff_t)(call->v_head * sizeof(float));
    view->v.step = 16;
    view->v.panel = ATTN__CHUNK * 16;
    view->v.stored = ATTN_F32;
    view->v.last_columns = 0;
    return not_finite;
}

/* Locates K and V of the chunk in memory. */
static void attn__view_sources(const attn__block *block, attn__view *view)
{
    const attn__call *call = block->call;
    const attn_kv *kv = call->kv;
    attn__source *k = &view->k, *v = &view->v;
    k->stored = call->k_stored;
    v->stored = call->v_stored;
    v->panel = 16;
    if (kv) {
        k->at = attn__page_k(kv, view->page, block->kv_head);
        v->at = attn__page_value(kv, view->page, block->kv_head, 0);
        k->head = (ptrdiff_t)((size_t)kv->page_keys * kv->k_row);
        v->head = (ptrdiff_t)((size_t)kv->page_keys * kv->v_row);
        v->step = (ptrdiff_t)attn__kv_v_width(&kv->shape);
        k->step = call->k_width;
        k->scale = attn__page_scale(kv, view->page, block->kv_head, 0, 0);
        v->scale = attn__page_scale(kv, view->page, block->kv_head, 0, 1);
        k->scale_head = v->scale_head = kv->page_keys;
        v->last_columns = 0;
        ATTN__COUNT(CACHE);
        return;
    }
    k->at = attn__plain_row(block->entry->k, call->k, block, view->first_key);
    v->at = attn__plain_row(block->entry->v, call->v, block, view->first_key);
    k->head = call->k[2] * (ptrdiff_t)sizeof(float);
    v->head = call->v[2] * (ptrdiff_t)sizeof(float);
    k->step = call->k[1];
    v->step = call->v[1];
    v->last_columns = call->v_head_dim % 16;
    k->scale = v->scale = NULL;
    if (view->route & ATTN__THIN) ATTN__COUNT(ROWS);
    else ATTN__COUNT(PACKED);
}

/* Widens V of the chunk, if the route requires it. */
static void attn__widen_v(const attn__block *block, attn__view *view)
{
    if (view->route & ATTN__WIDEN_V)
        attn__widen_source(block, view, &view->v, view->keys, block->mem.v_rows,
                           ATTN__CHUNK * view->v.step);
}

/* Prepares K as the route requires. With v_in_k, K and V are the same rows, which are widened once,
   here: the front of each key is its value. */
static void attn__view_k(const attn__block *block, attn__view *view)
{
    const attn__call *call = block->call;
    if (call->kv && !call->k_in_panels) {
        attn__widen_v(block, view);
        view->k = view->v;
    }
    if (view->route & ATTN__WIDEN_K)
        attn__widen_source(block, view, &view->k, ATTN__CHUNK, block->mem.k,
                           (ptrdiff_t)call->k_head);
    if (view->route & ATTN__PACK_K) attn__pack_k(block, view);
}

/* Clears a product and sets its right-hand side to V of the chunk, except for the first key (b) and
   the number of keys (depth). */
static void attn__product_with_v(const attn__block *block, const attn__view *view, attn__gemm *g)
{
    memset(g, 0, sizeof *g);
    g->b_step = view->v.step;
    g->b_panel = view->v.panel;
    g->stored = view->v.stored;
    g->n_panels = block->call->v_width / 16;
    g->last_columns = view->v.last_columns;
    g->room = block->mem.v_rows;
}

/* Returns 1 if V of a head, which is in place, has a NaN or infinity. */
static int attn__v_not_finite(const attn__block *block, const attn__view *view, int local)
{
    const int lo = view->sees.lo, hi = view->sees.hi;
    attn__gemm g;
    int j;
    if (view->v.scale) {                  /* integers are finite */
        const float *scale = attn__scales_of(&view->v, local);
        for (j = lo; j < hi && attn__finite(scale[j]); ) j++;
        return j < hi;
    }
    attn__product_with_v(block, view, &g);
    g.b = attn__source_at(&view->v, local, lo * g.b_step);
    g.depth = hi - lo;
    return block->call->kernels->not_finite(&g);
}

/* Returns the heads for which p . v leaves out the hidden keys of each row. Their probability is 0,
   but 0 times a V that is not finite is NaN, and V that no row needs may be uninitialised. If V is
   finite, hidden keys add exact zeros. not_finite: the result of attn__pack_v. */
static unsigned attn__view_selects(const attn__block *block, const attn__view *view,
                                   unsigned not_finite)
{
    unsigned selects = 0;
    int local;
    if (!view->sees.partial) return 0;
    /* V that only another head needs may be uninitialised here, so it is not scanned. */
    if (view->sees.gaps && (view->route & ATTN__THIN)) return ~0u;
    /* Without gaps a single row sees all keys of the range. */
    if (view->per_head == 1) return 0;
    if (view->v.last_columns) return ~0u;         /* a scan reads whole panels */
    if ((view->route & ATTN__PACK_V) && !view->v.scale) return not_finite;
    for (local = 0; local < block->kv_heads; local++)
        selects |= (unsigned)attn__v_not_finite(block, view, local) << local;
    return selects;
}

/* Prepares V as the route requires, and decides how p . v treats hidden keys. */
static void attn__view_v(const attn__block *block, attn__view *view)
{
    unsigned not_finite = 0;
    if (block->call->k_in_panels) attn__widen_v(block, view);
    if (view->route & ATTN__PACK_V) not_finite = attn__pack_v(block, view);
    view->selects = attn__view_selects(block, view, not_finite);
}

/* ---- what products prefetch ------------------------------------------------------------------ */

/* Returns the address for plain rows (table at attn__ahead), or NULL if heads are not
   adjacent, if some are in other blocks, or if too few keys follow. Each head prefetches as much as
   it reads, so all heads together prefetch the memory that is read next. From memory 8 rows take
   0.9 of the time without prefetches. */
static const void *attn__prefetch_rows(const attn__block *block, const attn__view *view, int local,
                                       int v_done)
{
    const attn__call *call = block->call;
    const int packs = (view->route & ATTN__PACK_K) != 0;
    const int v = !v_done || !packs, dim = v ? call->v_head_dim : call->head_dim;
    const int keys = view->slices ? (int)ATTN__PANEL : (int)ATTN__CHUNK;
    const int first = view->first_key + (v_done && packs ? ATTN__CHUNK : v_done);
    const ptrdiff_t *step = v ? call->v : call->k;
    if (first + keys > block->entry->keys ||
        step[1] != block->kv_heads * (ptrdiff_t)dim)
        return NULL;
    return attn__plain_row(v ? block->entry->v : block->entry->k, step, block, first) +
           (ptrdiff_t)local * keys * dim;
}

/* Returns the address for a cache. From memory 8 rows take 0.88 of the time without prefetches. */
static const void *attn__prefetch_pages(const attn__block *block, const attn__band *band,
                                        const attn__view *view, int local, int v_done)
{
    const int last = local + 1 == band->end_head;
    const int r = view->from + view->per_head, end = r == block->per_head;
    int page;
    if (!v_done && last) return attn__source_at(&view->v, band->first_head, 0);
    if (!v_done) return attn__source_at(&view->k, local + 1, 0);
    if (local + 1 < block->kv_heads)
        return attn__source_at(last ? &view->k : &view->v, local + 1, 0);
    page = attn__chunk_page(attn__block_entry(block, end ? 0 : r), view->chunk + end);
    return page < 0 ? NULL : attn__page_k(block->call->kv, page, block->kv_head);
}

/* Returns the address that a product over K or V of head `local` prefetches, or NULL. v_done is 0
   for K. For V it is the end of the run: the keys of the chunk before it are then done.

     a product over     prefetches from a cache              from plain rows, if all heads of a row
                                                             are in the block
      K of a head       K of the next head; the last head    V of the same keys
                        of a band: V of its first head
      V of a head       V of the next head; the last head    K in place: V of the next keys
                        of a band: K of the next heads; of   K packed: K of the next chunk
                        the block: K of the next view

   (kernels->scores, for K in place, prefetches K 32 keys ahead.) */
ATTN__INLINE const void *attn__ahead(const attn__block *block, const attn__band *band,
                                     const attn__view *view, int local, int v_done)
{
    if (!(view->route & ATTN__AHEAD)) return NULL;
    return block->call->kv ? attn__prefetch_pages(block, band, view, local, v_done)
                           : attn__prefetch_rows(block, view, local, v_done);
}

/* ---- a band: scores and probabilities -------------------------------------------------------- */

/* Sets the values common to all bands and chunks of a block. */
static void attn__bands_begin(const attn__block *block)
{
    const attn__call *call = block->call;
    attn__band *band = &block->slot->band;
    attn__softmax *softmax = &band->softmax;
    /* The fold reads whole vectors, including lanes after the last row. */
    const size_t lanes = attn__up((size_t)attn__min(block->rows, ATTN__BAND), ATTN__PANEL);
    memset(band->m, 0, lanes * sizeof(float));
    memset(band->l, 0, lanes * sizeof(float));
    softmax->scores = block->mem.scores;
    softmax->m = band->m;
    softmax->l = band->l;
    softmax->alibi = call->alibi_slopes != NULL;
    softmax->rel = call->rel_bias != NULL;
    softmax->softcap = call->softcap;
    softmax->simple = !(call->softcap > 0.0f || call->alibi_slopes);
    softmax->per_key = block->arrays || !softmax->simple;
    softmax->all = block->sees_all;
}

/* Thick: each row prefetches the mask (the last of ATTN__ADDED) of the row band->rows further on,
   if that is a fixed distance away; otherwise the distance is 0. 2048 x 2048 with a mask takes 0.91
   of the time. */
static void attn__band_prefetch(const attn__block *block, attn__band *band, const attn__view *view)
{
    const attn__call *call = block->call;
    attn__softmax *softmax = &band->softmax;
    int x;
    softmax->prefetch_stride = 0;
    if ((view->route & ATTN__THIN) || call->group > 1 || block->readers > 1 ||
        band->start % block->per_head + 2 * band->rows > block->per_head)
        return;
    for (x = 0; x < ATTN__ALL_ADDED; x++)
        if (call->cells[x].at) {
            softmax->prefetch = x;
            softmax->prefetch_stride = band->rows * call->cells[x].step[2];
        }
}

/* Sets rows, panels and keys of the band at row r of its K/V heads. Thick: a register tile and the
   tiles after it that see the same panels; 512 causal rows then take 0.68 of the time. */
static void attn__band_rows(const attn__block *block, attn__band *band, const attn__view *view,
                            int head, int r)
{
    const attn__visibility *sees = &view->sees;
    int heads;
    band->first_head = head;
    band->end_head = attn__min(head + view->band_heads, block->kv_heads);
    band->per_head = attn__min(view->band_rows, view->per_head - r);
    band->panels = sees->panels;
    band->lo = sees->lo;
    band->hi = sees->hi;
    if (!(view->route & ATTN__THIN)) {
        int t = r / view->tile_rows, rows = 0, lo = ATTN__CHUNK, hi = 0;
        band->panels = sees->tile_panels[t];
        for (; rows < band->per_head && sees->tile_panels[t] == band->panels; t++) {
            lo = attn__min(lo, sees->tile_lo[t]);
            hi = attn__max(hi, sees->tile_hi[t]);
            rows += view->tile_rows;
        }
        band->per_head = attn__min(rows, band->per_head);
        band->lo = attn__max(band->lo, lo);
        band->hi = attn__min(band->hi, hi);
    }
    heads = band->end_head - head;
    band->rows = band->per_head * heads;
    band->start = head * block->per_head + view->from + r;
    band->at_once = view->per_head > 1 ? 1 : heads;
    band->step = view->per_head > 1 ? 1 : block->per_head;
}

/* Opens the band at row r of K/V heads head .. ; returns 0 if none of its rows sees a key. */
static int attn__band_open(const attn__block *block, attn__band *band, const attn__view *view,
                           int head, int r)
{
    attn__softmax *softmax = &band->softmax;
    attn__band_rows(block, band, view, head, r);
    if (!band->panels) { ATTN__COUNT(SKIP); return 0; }
    if (band->per_head == 1) ATTN__COUNT(ONE_ROW);
    else if (block->call->group > 1) ATTN__COUNT(GROUP);
    softmax->row = block->mem.row + band->start;
    softmax->seen = block->mem.seen + band->start;
    softmax->per_head = band->per_head;
    softmax->gap = band->rows > band->per_head ? block->per_head - band->per_head : 0;
    softmax->n = view->keys;
    softmax->rows = band->rows;
    softmax->first_key = view->first_key;
    softmax->lo = view->sees.lo;
    softmax->hi = view->sees.hi;
    attn__runs_of(&softmax->runs, band->panels);
    if (softmax->per_key) {
        ATTN__COUNT(MASKED);
        attn__band_prefetch(block, band, view);
    }
    return 1;
}

/* Computes the scores of a band against K in place. */
static void attn__scores_of_rows(const attn__block *block, const attn__band *band,
                                 const attn__view *view)
{
    const attn__call *call = block->call;
    const int there = call->kv ? view->keys       /* of its page */
        : attn__max(view->keys, block->entry->keys - view->first_key);
    const float *k = (const float *)attn__source_at(&view->k, band->first_head, 0);
    attn__heads heads;
    attn__gemm g;                         /* only the members that `scores` reads */
    int lo = 0, hi = 0;
    heads.n = band->end_head - band->first_head;
    heads.q = (ptrdiff_t)block->per_head * call->head_dim;
    heads.k = view->k.head / (ptrdiff_t)sizeof(float);
    heads.c = (ptrdiff_t)band->per_head * ATTN__CHUNK;
    g.a = block->mem.q + (ptrdiff_t)band->start * call->head_dim;
    g.a_row = call->head_dim;
    g.b_step = view->k.step;
    g.c_row = ATTN__CHUNK;
    g.rows = band->per_head;
    g.depth = call->head_dim;
    if (view->sees.n_listed) {
        /* Scores of keys that are not listed will be hidden, but are read before. */
        memset(block->mem.scores, 0, (size_t)band->rows * ATTN__CHUNK * sizeof(float));
        g.b = k + view->sees.lo * g.b_step;
        g.c = block->mem.scores + view->sees.lo;
        call->kernels->score_keys(&g, heads, view->sees.listed, view->sees.n_listed);
        return;
    }
    while (attn__next_run(view->sees.panels, &lo, &hi)) {
        const int end = attn__min(hi, view->keys);
        g.b = k + lo * g.b_step;
        g.c = block->mem.scores + lo;
        call->kernels->scores(&g, heads, end - lo, there - end);
    }
}

/* Computes the scores of the band against K in panels, head by head and run by run. */
static void attn__scores_of_panels(const attn__block *block, const attn__band *band,
                                   const attn__view *view)
{
    const ptrdiff_t head_dim = block->call->head_dim, width = view->k.step;
    const ptrdiff_t q_row = block->call->q_row;
    attn__byte_rows q = { block->mem.q_bytes + band->start * q_row, band->step * q_row,
                          block->mem.q_scale + band->start, band->step, NULL, 0 };
    const attn__runs *runs = &band->softmax.runs;
    attn__gemm g;
    int local, i, row = 0;
    memset(&g, 0, sizeof g);
    g.a = block->mem.q + band->start * head_dim;
    g.a_row = band->step * head_dim;
    g.b_panel = 16 * width;
    g.b_row = band->at_once > 1 ? view->k.head : 0;
    g.b_step = 16;
    g.stored = view->k.stored;
    g.c_row = ATTN__CHUNK;
    g.rows = band->at_once * band->per_head;
    g.depth = (int)head_dim;
    if (band->at_once > 1) q.scale_row = view->k.scale_head;
    for (local = band->first_head; local < band->end_head; local += band->at_once) {
        g.prefetch = attn__ahead(block, band, view, local, 0);
        for (i = 0; i < runs->n; i++) {
            g.b = attn__source_at(&view->k, local, runs->lo[i] * width);
            g.c = block->mem.scores + row * ATTN__CHUNK + runs->lo[i];
            g.n_panels = (runs->hi[i] - runs->lo[i]) / 16;
            if (q_row) {
                q.scale = attn__scales_of(&view->k, local) + runs->lo[i];
                block->call->kernels->score_bytes(&g, q);
            } else block->call->kernels->gemm(&g);
        }
        g.a += block->per_head * head_dim;
        q.at += block->per_head * q_row;
        q.by += block->per_head;
        row += g.rows;
    }
}

/* Multiplies the scores or probabilities of a band by the scales of their keys; scores also by
   those of the queries, by[0] for the first (NULL: 1). Those of hidden keys may become NaN. */
static void attn__band_scale(const attn__block *block, const attn__band *band,
                             const attn__source *source, const float *by)
{
    const attn__runs *runs = &band->softmax.runs;
    int r, i;
    for (r = 0; r < band->rows; r++) {
        const float *scale = attn__scales_of(source, band->first_head + r / band->per_head);
        const float factor = by ? by[attn__row_of(&band->softmax, r)] : 1.0f;
        for (i = 0; i < runs->n; i++)
            block->call->kernels->times(block->mem.scores + r * ATTN__CHUNK + runs->lo[i],
                                        scale + runs->lo[i], factor, runs->hi[i] - runs->lo[i]);
    }
}

/* ---- a band: outputs ------------------------------------------------------------------------- */

/* Folds the states (m, l) of the band into (M, L) of its rows. */
static void attn__band_fold(const attn__block *block, attn__band *band)
{
    const attn__kernels *kernels = block->call->kernels;
    float *M = block->mem.M + band->start, *L = block->mem.L + band->start;
    int r;
    if (band->softmax.gap == 0) {
        kernels->fold(M, L, band->m, band->l, band->fold_a, band->fold_b, band->rows);
        return;
    }
    memset(band->M, 0, sizeof band->M);           /* the fold reads whole vectors */
    memset(band->L, 0, sizeof band->L);
    for (r = 0; r < band->rows; r++) {
        band->M[r] = M[attn__row_of(&band->softmax, r)];
        band->L[r] = L[attn__row_of(&band->softmax, r)];
    }
    kernels->fold(band->M, band->L, band->m, band->l, band->fold_a, band->fold_b, band->rows);
    for (r = 0; r < band->rows; r++) {
        M[attn__row_of(&band->softmax, r)] = band->M[r];
        L[attn__row_of(&band->softmax, r)] = band->L[r];
    }
}

/* Computes outputs of g->rows rows of the band from row `first` on, over g->depth keys of the chunk
   from key lo on. The rows are those of K/V head `local`; if the band takes several heads at once,
   one row of each head from `local` on. The caller has set g except b and the prefetch. */
static void attn__rows_outputs(const attn__block *block, const attn__band *band,
                               const attn__view *view, int local, int first, int lo, attn__gemm *g)
{
    const attn__visibility *sees = &view->sees;
    const int hi = lo + g->depth;
    g->b = attn__source_at(&view->v, local, lo * g->b_step);
    if (!(view->selects >> local & 1u)) {
        g->prefetch = attn__ahead(block, band, view, local, hi);
        block->call->kernels->gemm(g);
        return;
    }
    ATTN__COUNT(SELECT);
    ATTN_ASSERT(sees->n_listed == 0 || lo == sees->lo);        /* the list counts from there */
    block->call->kernels->select(g, block->mem.visible + first * ATTN__CHUNK + lo,
                                 sees->n_listed > 0 ? sees->listed : NULL, sees->n_listed);
}

/* Computes the outputs of a band, run by run; in slices, each run is a slice. Sums continue in
   `chains`, and the last run folds them. */
static void attn__band_outputs(const attn__block *block, const attn__band *band,
                               const attn__view *view)
{
    const ptrdiff_t v_width = block->call->v_width;
    const int at_once = view->selects ? 1 : band->at_once;    /* each head may select */
    /* listed keys are few: the kernel skips the keys between them */
    const unsigned panels = view->sees.n_listed > 0 ? attn__panels_between(band->lo, band->hi)
                                                    : band->panels;
    int lo = 0, hi = 0, begun = 0, local, row;
    attn__gemm g;
    attn__product_with_v(block, view, &g);
    g.rows = at_once * band->per_head;
    g.a_row = ATTN__CHUNK;
    g.b_row = at_once > 1 ? view->v.head : 0;
    for (; attn__next_run(panels, &lo, &hi); begun = 1) {
        const int from = attn__max(lo, band->lo);
        int last;
        if (view->slices && !view->sees.n_listed) hi = lo + ATTN__PANEL;
        last = !(panels >> hi / ATTN__PANEL);     /* only then is the sum complete */
        g.a = block->mem.scores + from;
        g.depth = attn__min(hi, band->hi) - from;
        g.from = begun ? block->mem.chains : NULL;
        g.from_row = v_width;
        g.c = last ? block->mem.o + band->start * v_width : block->mem.chains;
        g.c_row = last ? band->step * v_width : v_width;
        g.fold_a = last ? band->fold_a : NULL;
        g.fold_b = last ? band->fold_b : NULL;
        for (row = 0, local = band->first_head; local < band->end_head; local += at_once) {
            attn__rows_outputs(block, band, view, local, row, from, &g);
            row += g.rows;
            g.a += g.rows * ATTN__CHUNK;
            g.c += (last ? at_once * block->per_head : g.rows) * v_width;
            if (begun) g.from += g.rows * v_width;
            if (last) { g.fold_a += g.rows; g.fold_b += g.rows; }
        }
    }
}

/* ---- running chunks -------------------------------------------------------------------------- */

/* The last step of a band: probabilities, states and outputs. */
static void attn__band_finish(const attn__block *block, attn__band *band, const attn__view *view)
{
    band->softmax.visible = view->selects ? block->mem.visible : NULL;
    block->call->kernels->softmax(&band->softmax);
    if (view->v.scale) attn__band_scale(block, band, &view->v, NULL);
    attn__band_fold(block, band);
    attn__band_outputs(block, band, view);
}

/* The last step of a band when M and L are final: the weights of its rows. */
static void attn__band_weigh(const attn__block *block, attn__band *band, const attn__view *view)
{
    const attn__call *call = block->call;
    int r;
    for (r = 0; r < band->rows; r++) {
        const int row = band->start + attn__row_of(&band->softmax, r);
        const attn__rowref *ref = block->mem.row + row;
        float *weights = attn__row_weights(call, ref);
        if (weights)
            call->kernels->weigh(&band->softmax, r, call->weights_stage,
                                 weights + block->entry->start + view->first_key, block->mem.M[row],
                                 block->mem.L[row]);
    }
}

/* Runs a chunk of a block: view by view, and each band of a view from scores to its last step
   before the next one begins, so its scores stay in L1 while packed K and V stay in L2. weigh 1:
   the last step writes weights. */
static void attn__chunk_run(const attn__block *block, int chunk, int weigh)
{
    attn__view *const view = &block->slot->view;
    attn__band *const band = &block->slot->band;
    int head, r;
    view->chunk = chunk;
    view->first_key = attn__chunk_key(block->entry, chunk);
    view->from = view->per_head = 0;
    while (attn__view_next(block, view)) {
        if (!attn__view_open(block, view)) continue;
        attn__view_sources(block, view);
        attn__view_k(block, view);
        if (!weigh) attn__view_v(block, view);
        /* Heads are in the inner loop because they may read the same masks. */
        for (r = 0; r < view->per_head; r += band->per_head)
            for (head = 0; head < block->kv_heads; head += view->band_heads) {
                if (!attn__band_open(block, band, view, head, r)) continue;
                if (view->route & ATTN__IN_PLACE) attn__scores_of_rows(block, band, view);
                else attn__scores_of_panels(block, band, view);
                if (view->k.scale && !block->call->q_row)
                    attn__band_scale(block, band, &view->k, block->mem.q_scale + band->start);
                if (weigh) attn__band_weigh(block, band, view);
                else attn__band_finish(block, band, view);
            }
    }
}

/* Runs the chunks that the rows of a block see. */
static void attn__block_run(const attn__block *block, int weigh)
{
    int chunk;
    attn__bands_begin(block);
    for (chunk = block->chunk; chunk < block->end; chunk++) attn__chunk_run(block, chunk, weigh);
}

/* ---- states of rows -------------------------------------------------------------------------- */

/* Folds (m, l) and the outputs x of more keys (NULL: zeros) into (M, L) and o of a row. The kernel
   folds whole vectors of rows. */
static void attn__fold_row(const attn__kernels *kernels, float *M, float *L, float *o, float m,
                           float l, const float *x, int n)
{
    float v[6][ATTN__PANEL];
    memset(v, 0, sizeof v);
    v[0][0] = *M;
    v[1][0] = *L;
    v[2][0] = m;
    v[3][0] = l;
    kernels->fold(v[0], v[1], v[2], v[3], v[4], v[5], 1);
    *M = v[0][0];
    *L = v[1][0];
    kernels->fold_out(o, x, v[4][0], v[5][0], n);
}

/* Folds n states, `step` floats apart, into (M, L) and o of a row. Those that have seen no key
   change nothing. Returns 1 if one has. */
static int attn__fold_states(const attn__kernels *kernels, const float *state, size_t step, int n,
                             float *M, float *L, float *o, int v_head_dim)
{
    int seen = 0;
    for (; n > 0; n--, state += step) {
        if (state[2] == 0.0f) continue;
        attn__fold_row(kernels, M, L, o, state[0], state[1], state + 4, v_head_dim);
        seen = 1;
    }
    return seen;
}

/* ---- a block's results ----------------------------------------------------------------------- */

/* Fills the weights of a row with the value of hidden keys. */
static void attn__weights_fill(const attn__call *call, const attn__rowref *row)
{
    const float cell = call->weights_stage == ATTN_PROBABILITIES ? 0.0f : -attn__inf();
    float *weights = attn__row_weights(call, row);
    int j;
    for (j = 0; weights && j < call->n_k; j++) weights[j] = cell;
}

/* Writes the weights of a block: a second pass over its keys, after M and L are final. Raw and
   capped scores are those of all keys that exist, even if hidden. */
static void attn__block_weights(attn__block *block)
{
    const attn__call *call = block->call;
    int r;
    if (block->rows == 0 || !block->weighs) return;
    for (r = 0; r < block->rows; r++) {
        attn__rowref *row = block->mem.row + r;
        attn__weights_fill(call, row);
        if (!call->raw) continue;
        row->from = 0;
        row->to = call->entry[row->b].keys;
    }
    if (call->raw) {
        block->arrays = 0;
        attn__block_ranges(block);
    }
    attn__block_run(block, 1);
}

/* Writes out (`to_out`) and lse of a row that has seen no key. */
static void attn__write_empty(const attn__call *call, const attn__rowref *row, int to_out)
{
    if (to_out) memset(row->out, 0, (size_t)call->v_head_dim * sizeof(float));
    if (call->lse) call->lse[attn__row_index(call, row)] = -attn__inf();
}

/* Stores the states of the rows of a block. o goes through `finish` with L = 1, which cleans it:
   one NaN, no -0. */
static void attn__block_store(const attn__block *block, float *states)
{
    const attn__call *call = block->call;
    const attn__parts *mem = &block->mem;
    const float one = 1.0f;
    int r;
    for (r = 0; r < block->rows; r++) {
        float *to = states + attn__row_state(call, mem->row + r);
        attn__rowref row = mem->row[r];
        row.out = to + 4;
        call->kernels->finish(&row, mem->o + (ptrdiff_t)r * call->v_width, call->v_width, &one, 1,
                              call->v_head_dim);
        if (mem->seen[r]) attn__carry_put(to, mem->M[r], mem->L[r], 1);
        else attn__carry_close(to, 0.0f, 0.0f, 0, call->v_head_dim);
    }
}

/* Writes the rows of padding of the block's entry, if the block has its last rows. Entries with
   padding do not share blocks. */
static void attn__block_padding(const attn__block *block)
{
    const attn__call *call = block->call;
    const int from = block->kv_head * call->group, to = from + block->kv_heads * call->group;
    const int sets = call->carry_out ? attn__max(call->parts, 1) : 0;
    attn__rowref row;
    int i, h, set;
    if (!call->padding || block->first_row + block->per_head < block->each) return;
    for (i = block->entry->rows; i < call->n_q; i++)
        for (h = from; h < to; h++) {
            attn__row_set(call, block->entry, h, i, &row);
            attn__write_empty(call, &row, call->out_padding);
            attn__weights_fill(call, &row);
            for (set = 0; set < sets; set++)
                attn__carry_close(call->carry_out + (size_t)set * attn__carry_floats(call) +
                                  attn__row_state(call, &row), 0.0f, 0.0f, 0, call->v_head_dim);
        }
}

/* Finishes a block after the last chunk: writes rows of padding, then sinks, the division and the
   other outputs (with carry_out: states for a later call), and last weights, in a second pass over
   the chunks. */
static void attn__block_close(attn__block *block)
{
    const attn__call *call = block->call;
    const attn__parts *mem = &block->mem;
    const int v_width = call->v_width;
    int r;
    attn__block_padding(block);
    if (block->rows == 0) return;
    if (call->carry_out) {
        attn__block_store(block, call->carry_out);
        attn__block_weights(block);
        return;
    }
    /* A sink is a key with a score and no value. One of -inf is ignored: its sum is 0. */
    for (r = 0; r < block->rows && call->sinks; r++) {
        const float sink = call->sinks[mem->row[r].h];
        attn__fold_row(call->kernels, mem->M + r, mem->L + r, mem->o + (ptrdiff_t)r * v_width,
                       sink, sink == -attn__inf() ? 0.0f : 1.0f, NULL, v_width);
    }
    call->kernels->finish(mem->row, mem->o, v_width, mem->L, block->rows, call->v_head_dim);
    for (r = 0; r < block->rows; r++)
        if (!mem->seen[r]) {
            attn__write_empty(call, mem->row + r, 1);
            block->slot->empty++;
        } else if (call->lse)
            call->lse[attn__row_index(call, mem->row + r)] =
                attn__clean(mem->M[r] + attn__log(mem->L[r]));
    attn__block_weights(block);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* Returns the first set of states that a split writes. Splits are sized for the longest entry, so a
   split of a shorter one may have no chunk. The last one also writes parts without a chunk. */
static int attn__split_from(const attn__call *call, int split)
{
    if (split == call->splits) return call->sets;
    return (int)((long long)call->chunks * split / call->splits);
}

/* Item: a block, whose chunks are folded at once. */
static void attn__item_block(attn__block *block, int item)
{
    ATTN__COUNT(ITEM);
    if (attn__block_open(block, item)) {
        attn__block_queries(block);
        attn__block_begin(block, block->call->carry_in);
        attn__block_run(block, 0);
    }
    attn__block_close(block);
}

/* Item: a split of a block, whose chunks store separate states. */
static void attn__item_split(attn__block *block, int item)
{
    const attn__call *call = block->call;
    const int split = item % call->splits, end = attn__split_from(call, split + 1);
    int set = attn__split_from(call, split);
    ATTN__COUNT(ITEM);
    if (!attn__block_open(block, item / call->splits)) return;
    attn__block_queries(block);
    attn__bands_begin(block);
    for (; set < end; set++) {
        attn__block_begin(block, NULL);
        if (set >= block->chunk && set < block->end) attn__chunk_run(block, set, 0);
        attn__block_store(block, call->states + (size_t)set * attn__carry_floats(call));
    }
}

/* Item: a split of a block of a call with parts. The first one also writes padding and weights. */
static void attn__item_part(attn__block *block, int item)
{
    attn__item_split(block, item);
    if (item % block->call->splits != 0) return;
    attn__block_padding(block);
    attn__block_weights(block);
}

/* Item: a block whose chunks have stored states, which are folded in key order. */
static void attn__item_fold(attn__block *block, int item)
{
    const attn__call *call = block->call;
    const attn__parts *mem = &block->mem;
    int r;
    if (attn__block_open(block, item)) {
        ATTN__COUNT(SPLIT);
        if (block->weighs) attn__block_queries(block);
        attn__block_begin(block, call->carry_in);
        for (r = 0; r < block->rows; r++)
            mem->seen[r] |= attn__fold_states(
                call->kernels, call->states + attn__row_state(call, mem->row + r),
                attn__carry_floats(call), call->sets, mem->M + r, mem->L + r,
                mem->o + (ptrdiff_t)r * call->v_width, call->v_head_dim);
    }
    attn__block_close(block);
}

/* Item: a block, computed row by row by the scalar specification. */
static void attn__item_scalar(attn__block *block, int item)
{
    const attn__call *call = block->call;
    int kv_head, r;
    attn__block_at(block, item);
    for (kv_head = block->kv_head; kv_head < block->kv_head + block->kv_heads; kv_head++)
        for (r = block->first_row; r < block->first_row + block->per_head; r++) {
            ATTN__COUNT(SCALAR);
            block->slot->empty += (size_t)
                attn__scalar_row(call, block->entry, kv_head * call->group + r % call->group,
                                 r / call->group);
        }
    attn__block_padding(block);
}

/* ---- tasks ----------------------------------------------------------------------------------- */

/* The items of a call that are left. */
typedef struct attn__queue {
    const attn__call *call;
    void (*run)(attn__block *block, int item);
    int items, next;                      /* number of items; the next item to take */
} attn__queue;

/* Returns the next item for this task. Without atomic instructions (Cortex-M0+, rv32imc), or with a
   compiler not known to have them, each task gets a fixed share instead. */
static int attn__take(attn__queue *queue, int slot, int round)
{
#if defined(__GCC_ATOMIC_INT_LOCK_FREE) && __GCC_ATOMIC_INT_LOCK_FREE == 2
    (void)slot;
    (void)round;
    return queue->call->tasks == 1 ? queue->next++
                                   : __atomic_fetch_add(&queue->next, 1, __ATOMIC_RELAXED);
#else
    return slot + round * queue->call->tasks;
#endif
}

/* Task: takes items until none are left. Its number is that of its slot: a thread may run several
   tasks, but no two tasks share work memory. */
static void attn__task(void *arg, int slot)
{
    attn__queue *queue = (attn__queue *)arg;
    int item, round;
    attn__slot_open(queue->call, slot);
    for (round = 0; (item = attn__take(queue, slot, round)) < queue->items; round++)
        queue->run(&attn__slot_at(queue->call, slot)->block, item);
}

/* Runs all items, with at most one task per slot. */
static void attn__run_items(const attn__call *call, int items,
                            void (*run)(attn__block *, int))
{
    attn__queue queue = { call, run, items, 0 };
    attn__run(call->exec, attn__min(items, call->tasks), !call->is_short, attn__task, &queue);
}

/* Runs a placed call. Returns the number of empty rows, which are counted per slot: no counter is
   shared.

     states_to    items are                       states of a chunk go to   a block is closed by
      ROWS        blocks                          (M, L, o) at once         attn__item_block
      WORKSPACE   splits of blocks, then blocks   a set of the workspace    attn__item_fold
      PARTS       splits of blocks                the part with its number  attn_fold, by the caller

   WORKSPACE: few blocks, at most one per thread, of up to 24 rows, with more than one chunk. PARTS:
   enough splits for about four items per thread, but no more than parts or chunks. The states are
   folded in key order, with the operations of ROWS, so the bits are the same. */
static size_t attn__call_run(const attn__call *call)
{
    const int blocks = call->first_block[call->batch];
    size_t empty = 0;
    int i;
    for (i = 0; i < call->tasks; i++) attn__slot_at(call, i)->empty = 0;
    if (attn__is_scalar(call->kernels)) {         /* builds without SIMD drop the rest */
        attn__run_items(call, blocks, attn__item_scalar);
    } else if (call->states_to == ATTN__TO_ROWS) {
        attn__run_items(call, blocks, attn__item_block);
    } else if (call->states_to == ATTN__TO_PARTS) {
        attn__run_items(call, blocks * call->splits, attn__item_part);
    } else {
        attn__run_items(call, blocks * call->splits, attn__item_split);
        attn__run_items(call, blocks, attn__item_fold);
    }
    for (i = 0; i < call->tasks; i++) empty += attn__slot_at(call, i)->empty;
    ATTN__GUARD((float *)(void *)call->entry, (call->bytes - 64) / sizeof(float), 0);
    return empty;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Checks a call and plans it: everything that is known before its memory. */
static attn_status attn__call_make(attn__call *call, const attn_args *a, attn__why *why,
                                   int contents)
{
    ATTN__TRY(attn__check(a, call, why, contents));
    attn__call_plan(call);
    return ATTN_OK;
}

ATTNDEF size_t attn_sdpa_workspace(const attn_args *a)
{
    attn__call call;
    attn__why why;
    attn__why_open(&why, "attn_sdpa_workspace", a ? a->user : NULL);
    if (attn__call_make(&call, a, &why, ATTN__PLANS) != ATTN_OK) return (size_t)-1;
    if (call.bytes == (size_t)-1) (void)attn__check_work(&call, &why);
    return call.bytes;
}

#ifdef ATTN_DEBUG
/* Prints legal calls that are probably mistakes: calls without work because of a missing size or an
   empty cache, windows that reach forgotten keys, and top-left rows over a longer cache. */
static void attn__debug_doubts(const attn__call *call, attn__why *why)
{
    if (call->batch == 0 || call->n_q == 0)
        attn__format_part(why, "%s is 0: nothing is written",
                          call->batch == 0 ? "batch" : attn__word(why->n, "n_q"));
    else if (call->n_k == 0 && !call->carry_in && !call->carry_out) {
        if (call->kv) attn__format_part(why, "no entry of the cache has a key");
        else attn__format_part(why, "%s is 0", attn__word(why->n, "n_k"));
        attn__format_part(why, ": every row is empty");
    } else {
        attn__format_forgotten(call, "", why);
        attn__format_top_left(call, why->text.at ? "; " : "", why);
    }
    if (why->text.at) ATTN__DEBUG_PRINT(why->room);
}
#endif

struct attn__kv_rows;                     /* section 7 */

/* Runs a call that attn__call_make has made. `append`: NULL, or rows that are appended to the
   cache first. `room`: memory that may replace an allocation, or NULL. */
static ATTN__NOINLINE attn_status attn__sdpa_run(attn__call *call,
                                                 struct attn__kv_rows *append, char *room,
                                                 size_t room_size, attn__why *why)
{
    void *own = NULL;
    char *at;
    size_t empty = 0;
    ATTN__TRY(attn__check_work(call, why));
    if (call->batch > 0 && call->n_q > 0) {
        /* The caller's work; else `room`, if it is large enough; else an allocation. */
        at = (char *)call->work;
        if (!at && call->bytes <= room_size) at = room;
        if (!at) at = (char *)(own = ATTN_MALLOC(call->user, call->bytes));
        if (!at)
            return attn__fail(why, ATTN_E_MEMORY, "ATTN_MALLOC has no %lld bytes for the workspace",
                              (long long)call->bytes);
        /* Nothing can fail from here on. (A failing step has to leave its cache unchanged.) */
#ifndef ATTN_NO_CACHE
        if (append) attn__kv_write(append, call->tasks > 1 ? call->exec : NULL);
#else
        (void)append;
#endif
        attn__call_place(call, at);
        empty = attn__call_run(call);
        if (own) ATTN_FREE(call->user, own);
    }
#ifdef ATTN_DEBUG
    attn__debug_doubts(call, why);
#endif
    if (call->masked_rows) *call->masked_rows = empty;
    return ATTN_OK;
}

ATTNDEF attn_status attn_sdpa(const attn_args *a)
{
    attn__why why;
    attn__call call;
    attn__why_open(&why, "attn_sdpa", a ? a->user : NULL);
    ATTN__TRY(attn__call_make(&call, a, &why, ATTN__CALLS));
    return attn__sdpa_run(&call, NULL, NULL, 0, &why);
}

/* The common part of attn_self and attn_cross. Room on the stack avoids allocations in small calls;
   the double aligns it. */
static attn_status attn__self_or_cross(attn_args *a, float *out, const float *q, const float *k,
                                       const float *v, const float *mask, attn__why *why)
{
    union { double align; char bytes[ATTN_STACK]; } room;
    attn__call call;
    a->out = out;
    a->q = q;
    a->k = k;
    a->v = v;
    a->mask = mask;
    if (mask) {
        a->mask_shape[0] = a->batch;
        a->mask_shape[1] = 1;
        a->mask_shape[2] = a->n_q;
    }
    ATTN__TRY(attn__call_make(&call, a, why, ATTN__CALLS));
    return attn__sdpa_run(&call, NULL, room.bytes, sizeof room, why);
}

ATTNDEF attn_status attn_self(float *out, const float *q, const float *k, const float *v, int batch,
                              int n, int heads, int head_dim, int causal, const int *lengths,
                              const float *mask)
{
    attn_args a = attn_args_for(batch, n, n, heads, head_dim);
    attn__why why;
    attn__why_open(&why, "attn_self", NULL);
    /* The names of n_q, n_k and *_lengths in this function's sentences. */
    why.n = "n";
    why.lengths = "lengths";
    /* With as many queries as keys there is only one causal mask, so alignment has no effect. */
    if (attn__check_option(&why, "causal", causal, 1) != ATTN_OK) return ATTN_E_OPTION;
    a.causal = causal ? ATTN_CAUSAL_TOP_LEFT : ATTN_CAUSAL_NONE;
    a.q_lengths = a.k_lengths = lengths;
    return attn__self_or_cross(&a, out, q, k, v, mask, &why);
}

ATTNDEF attn_status attn_cross(float *out, const float *q, const float *k, const float *v,
                               int batch, int n_q, int n_k, int heads, int head_dim,
                               const int *source_lengths, const float *mask)
{
    attn_args a = attn_args_for(batch, n_q, n_k, heads, head_dim);
    attn__why why;
    attn__why_open(&why, "attn_cross", NULL);
    why.lengths = "source_lengths";
    a.k_lengths = source_lengths;
    return attn__self_or_cross(&a, out, q, k, v, mask, &why);
}

/* ---- states: fold, merge --------------------------------------------------------------------- */

/* Shared by the tasks of a call. Rows are numbered as their states are stored. */
typedef struct attn__carry_job {
    const attn__call *call;
    const float *states;                  /* to be folded, n sets */
    int n;
    size_t rows, step;                    /* number of rows; rows per task */
} attn__carry_job;

/* Returns 1 if the row exists. Rows of padding have seen no key, whatever carry_in contains. */
static int attn__carry_exists(const attn__call *call, size_t row)
{
    const size_t n_q = (size_t)call->n_q;
    return (int)(row % n_q) < attn__rows_of(call, (int)(row / n_q / (size_t)call->heads));
}

/* Returns the state that a row continues from; NULL: empty. */
static const float *attn__carry_from(const attn__call *call, size_t row)
{
    if (!call->carry_in || !attn__carry_exists(call, row)) return NULL;
    return call->carry_in + row * ATTN_STATE(call->v_head_dim);
}

/* Returns the end of the rows of a task, and sets *row to the first. */
static size_t attn__carry_rows(const attn__carry_job *job, int task, size_t *row)
{
    *row = (size_t)task * job->step;
    return job->rows - *row < job->step ? job->rows : *row + job->step;
}

/* Task: folds the n states of each of its rows into the state that the row continues from. */
static void attn__fold_task(void *arg, int task)
{
    const attn__carry_job *job = (const attn__carry_job *)arg;
    const attn__call *call = job->call;
    const int v_head_dim = call->v_head_dim;
    const size_t size = ATTN_STATE(v_head_dim);
    size_t row, end = attn__carry_rows(job, task, &row);
    for (; row < end; row++) {
        float *out = call->carry_out + row * size, M, L;
        const int n = attn__carry_exists(call, row) ? job->n : 0;
        int seen = attn__carry_get(attn__carry_from(call, row), &M, &L, out + 4, v_head_dim);
        seen |= attn__fold_states(call->kernels, job->states + row * size, job->rows * size, n, &M,
                                  &L, out + 4, v_head_dim);
        attn__carry_close(out, M, L, seen, v_head_dim);
    }
}

/* Returns the members of *a that attn_fold reads: none about keys. */
static attn_args attn__carry_args(const attn_args *a)
{
    attn_args own;
    memset(&own, 0, sizeof own);
    own.batch = a->batch;
    own.n_q = a->n_q;
    own.heads = a->heads;
    own.v_head_dim = a->v_head_dim;
    own.head_dim = a->v_head_dim ? 1 : a->kv ? a->kv->shape.v_head_dim : a->head_dim;
    own.q_lengths = a->q_lengths;
    own.q_cum = a->q_cum;
    own.carry_in = a->carry_in;
    own.carry_out = a->carry_out;
    own.user = a->user;
    own.exec = a->exec;
    own.backend = a->backend;
    return own;
}

/* Folds n sets of states into those of all rows of a checked call. A job too small for threads runs
   on the caller's thread. */
static attn_status attn__carry_run(const attn__call *call, const float *states, int n,
                                   attn__why *why)
{
    const size_t rows = (size_t)call->batch * (size_t)call->heads * (size_t)call->n_q, step = 16;
    const size_t tasks = (rows + step - 1) / step;
    /* operations per row; each product fits */
    const unsigned long long each = 2ull * (unsigned)call->v_head_dim * ((unsigned)n + 1u);
    attn__carry_job job = { call, states, n, rows, step };
    if (tasks > INT_MAX)
        return attn__fail(why, ATTN_E_OVERFLOW, "there are more rows than can be counted");
    attn__run(attn__is_little(rows, each) ? NULL : call->exec, (int)tasks,
              !attn__is_short(rows, each / 2), attn__fold_task, &job);
    return ATTN_OK;
}

ATTNDEF attn_status attn_fold(const attn_args *a, const float *states, int n)
{
    attn_args own;
    attn__call call;
    attn__why why;
    size_t all = 0;
    attn__why_open(&why, "attn_fold", a ? a->user : NULL);
    if (!a) return attn__fail(&why, ATTN_E_NULL, "the attn_args are NULL");
    own = attn__carry_args(a);
    if (!a->carry_out && a->batch != 0 && (a->n_q != 0 || a->q_cum))
        return attn__fail(&why, ATTN_E_NULL, "carry_out is NULL");
    ATTN__TRY(attn__check_size(&why, "n", n, 0));
    ATTN__TRY(attn__check(&own, &call, &why, ATTN__STATES));
    if (call.batch == 0 || call.n_q == 0) return ATTN_OK;
    if (attn__mul(call.carry_bytes, (size_t)n, &all) || all > ATTN__BYTES_MAX)
        return attn__fail(&why, ATTN_E_OVERFLOW, "states is too large for the address space: n is "
                          "%d", n);
    ATTN__TRY(attn__check_given(&why, "states", states, all));
    ATTN__TRY(attn__check_apart(&why, "carry_out", a->carry_out, call.carry_bytes, "states", states,
                                all));
    return attn__carry_run(&call, states, n, &why);
}

ATTNDEF attn_status attn_merge(float *to, const float *from, size_t states, int v_head_dim)
{
    attn__call call;
    attn__carry_job job = { &call, from, 1, states, states };
    attn__why why;
    size_t bytes;
    attn__why_open(&why, "attn_merge", NULL);
    ATTN__TRY(attn__check_size(&why, "v_head_dim", v_head_dim, 1));
    if (attn__mul(states, ATTN_STATE(v_head_dim), &bytes) ||
        attn__mul(bytes, sizeof(float), &bytes) || bytes > ATTN__BYTES_MAX)
        return attn__fail(&why, ATTN_E_OVERFLOW, "states are too many for the address space");
    ATTN__TRY(attn__check_given(&why, "to", to, bytes));
    ATTN__TRY(attn__check_given(&why, "from", from, bytes));
    ATTN__TRY(attn__check_apart(&why, "to", to, bytes, "from", from, bytes));
    /* Folds one set of states into another, row by row, as in the scalar specification. */
    memset(&call, 0, sizeof call);
    call.kernels = &attn__kernels_scalar;
    call.carry_in = call.carry_out = to;
    call.heads = call.n_q = 1;
    call.v_head_dim = v_head_dim;
    attn__run(NULL, 1, 0, attn__fold_task, &job);
    return ATTN_OK;
}

#ifndef ATTN_NO_CACHE
/* ---- append and attend ----------------------------------------------------------------------- */

/* Rejects arguments that attn_self_step does not support. attn__check would accept some of them, or
   name a kv that the caller has not set. */
static attn_status attn__check_step(attn__why *why, const attn_kv *c, const attn_args *a)
{
    const char *keys = a->k_lengths ? "k_lengths" : a->k_starts ? "k_starts"
                     : a->k_map ? "k_map" : a->k_cum ? "k_cum" : NULL;
    const int strided = a->v_stride[0] || a->v_stride[1] || a->v_stride[2];
    const char *values = a->v ? "v" : strided ? "v_stride" : NULL;
    if (a->kv && a->kv != c)
        return attn__fail(why, ATTN_E_CONFLICT, "kv is another cache than c");
    if (keys)
        return attn__fail(why, ATTN_E_CONFLICT, "%s is set, but c knows which keys there are",
                          keys);
    if (a->causal == ATTN_CAUSAL_TOP_LEFT)
        return attn__fail(why, ATTN_E_CONFLICT, "causal is top-left, but new rows are the last: it "
                          "must be bottom-right, or 0");
    if (a->batch != c->shape.batch)
        return attn__fail(why, ATTN_E_SIZE, "batch is %d but the cache has %d entries", a->batch,
                          c->shape.batch);
    if (c->shape.v_in_k && values)
        return attn__fail(why, ATTN_E_CONFLICT, "%s is set, but c has v_in_k: its values are the "
                          "front of k", values);
    return ATTN_OK;
}

ATTNDEF attn_status attn_self_step(attn_kv *c, const attn_args *a)
{
    attn__why why;
    attn__call call;
    attn__kv_rows rows;
    attn_args step;
    attn__why_open(&why, "attn_self_step", a ? a->user : NULL);
    ATTN__TRY(attn__check_kv(&why, c));
    if (!a) return attn__fail(&why, ATTN_E_NULL, "the attn_args are NULL");
    ATTN__TRY(attn__check_step(&why, c, a));
    /* The checks of attn_sdpa for the cache after the append, with k and v following its keys. */
    step = *a;
    step.kv = c;
    step.causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    ATTN__TRY(attn__call_make(&call, &step, &why, ATTN__APPENDS));
    rows = attn__kv_rows_of(c, step.k, step.v, call.n_q, step.q_lengths, step.q_cum, 0);
    memcpy(rows.k_stride, call.k, sizeof call.k);
    memcpy(rows.v_stride, c->shape.v_in_k ? call.k : call.v, sizeof call.v);
    ATTN__TRY(attn__check_pages(&why, &rows));
    return attn__sdpa_run(&call, &rows, NULL, 0, &why);
}

#endif /* ATTN_NO_CACHE */

/* =================================================================================================
 * 9  PROJECTIONS AND LAYERS
 *
 * A linear is y = x W^T + b. Its inputs are cut into chains of 256, and an output is
 *     (chain of the first 256 products, begun at the bias) + (chain of the next, begun at +0) + ...
 * added in this order. The sum does not depend on other rows, blocks or threads, so they cannot
 * change its bits. Weights are packed as [n_out/16][n_in][16], followed by the bias, both padded to
 * whole panels. Weights of 16 bits are widened before they are multiplied: in registers, or, if
 * that takes many instructions, a piece of a panel at a time. In 8 bits a term of a chain is the
 * product of a block of 32 inputs, and weights are packed as [n_out/16][n_in/32] blocks of scales
 * and integers (attn__byte_panel). A layer is four linears around attn_sdpa.
 * ============================================================================================== */

/* ---- conversion of stored values ------------------------------------------------------------- */
/* A call of attn_narrow, from floats to `storage`, or of attn_widen, from `storage` to floats. A
   task, because parts of it are float arithmetic. */
typedef struct attn__convert {
    void *to;
    const void *from;
    size_t n;
    attn_storage storage;
    int narrows;
} attn__convert;

/* Converts a row of 8 bits: the scale, then the integers. */
static void attn__convert_q8(const attn__convert *c)
{
    size_t i;
    int sum;
    if (c->narrows) {
        float *scale = (float *)c->to;
        *scale = attn__round_row_scalar((signed char *)(scale + 1), (const float *)c->from, c->n,
                                        &sum);
    } else {
        const float *scale = (const float *)c->from;
        float *to = (float *)c->to;
        for (i = 0; i < c->n; i++)
            to[i] = attn__scaled(attn__stored(scale + 1, -1, i, ATTN_Q8), scale);
    }
}

static void attn__convert_task(void *arg, int i)
{
    const attn__convert *c = (const attn__convert *)arg;
    const attn__kernels *kernels = attn__table(ATTN_AUTO);
    (void)i;
    if (c->storage == ATTN_F32) memmove(c->to, c->from, c->n * sizeof(float));
    else if (c->storage == ATTN_Q8) attn__convert_q8(c);
    else if (c->narrows) kernels->narrow(c->to, (const float *)c->from, c->n, c->storage);
    else kernels->widen((float *)c->to, c->from, c->n, c->storage);
}

/* Checks the alignment of values in this format; NULL is allowed. */
static attn_status attn__check_values(attn__why *why, const char *name, const void *at,
                                      attn_storage storage)
{
    return attn__check_align(why, name, at, attn__formats[storage].align);
}

static attn_status attn__convert_run(const char *function, attn__convert c)
{
    const attn_storage to = c.narrows ? c.storage : ATTN_F32;
    const attn_storage from = c.narrows ? ATTN_F32 : c.storage;
    attn__why why;
    attn__why_open(&why, function, NULL);
    ATTN__TRY(attn__check_storage(&why, "storage", c.storage, ATTN__FORMATS));
    if (c.n > ATTN__BYTES_MAX / sizeof(float))
        return attn__fail(&why, ATTN_E_OVERFLOW, "n is more than the address space");
    if (c.n == 0) return ATTN_OK;
    if (!c.to || !c.from)
        return attn__fail(&why, ATTN_E_NULL, "%s is NULL", c.to ? "from" : "to");
    ATTN__TRY(attn__check_values(&why, "to", c.to, to));
    ATTN__TRY(attn__check_values(&why, "from", c.from, from));
    if (c.storage == ATTN_F32 && c.to == c.from) return ATTN_OK;
    ATTN__TRY(attn__check_apart(&why, "to", c.to, attn__row_bytes(c.n, to), "from", c.from,
                                attn__row_bytes(c.n, from)));
    attn__run(NULL, 1, 0, attn__convert_task, &c);
    return ATTN_OK;
}

ATTNDEF size_t attn_stored_bytes(size_t n, attn_storage storage)
{
    if ((unsigned)storage > (unsigned)ATTN__FORMATS || n > ATTN__BYTES_MAX / sizeof(float))
        return (size_t)-1;
    return attn__row_bytes(n, storage);
}

ATTNDEF attn_status attn_narrow(void *to, const float *from, size_t n, attn_storage storage)
{
    const attn__convert c = { to, from, n, storage, 1 };
    return attn__convert_run("attn_narrow", c);
}

ATTNDEF attn_status attn_widen(float *to, const void *from, size_t n, attn_storage storage)
{
    const attn__convert c = { to, from, n, storage, 0 };
    return attn__convert_run("attn_widen", c);
}

#ifndef ATTN_NO_LAYERS                    /* to the end of this section */
/* ---- linears --------------------------------------------------------------------------------- */
enum {
    ATTN__LINEAR_CHAIN = (int)ATTN__BLOCK * (int)ATTN__BLOCKS,   /* 256 inputs of one chain:
                                             determines the bits */
    ATTN__LINEAR_ROWS = 96,               /* rows of a block: 256 inputs of each stay in L2 */
    ATTN__LINEAR_HIGH = 192,              /* the same over large weights, which each block reads */
    ATTN__LINEAR_LARGE = 1 << 23,         /* min bytes of large weights */
    ATTN__LINEAR_PANELS = 16,             /* panels of one product: 256 inputs of each stay in L2 */
    ATTN__LINEAR_TILE = 12,               /* rows per product if n_out ends inside a panel; half of
                                             them if the product has two panels */
    ATTN__LINEAR_ROW_PANELS = 4,          /* panels that one row reads at a time, each a stream of
                                             memory; twice as many for short rows of 16 bits. In 8
                                             bits, of any number of rows */
    ATTN__LINEAR_FAR = 1 << 25,           /* min bytes of weights that are read from memory */
    ATTN__LINEAR_FAR_PANELS = 2,          /* panels that several rows read from memory at a time */
    ATTN__LINEAR_NEAR = 1 << 17,          /* max inputs of several rows that stay in L2 */
    ATTN__LINEAR_SHORT = 512,             /* max inputs of a short row */
    ATTN__LINEAR_AHEAD = 64,              /* inputs of 16 bits that one row prefetches ahead: 2 KB;
                                             half as many for short rows */
    ATTN__LINEAR_PIECE = 32,              /* inputs of a panel widened at once */
    ATTN__LINEAR_SHARE = 24               /* rows that share a piece, both: 3.5 KB of stack; in 8
                                             bits rows that share a block of weights */
};

/* Returns the blocks of 8 bits of n inputs; the last one is padded with zeros. */
static int attn__blocks(int n) { return n / ATTN__BLOCK + (n % ATTN__BLOCK > 0); }

static int attn__linear_panels(const attn_linear *l)
{
    return (l->n_out + ATTN__PANEL - 1) / ATTN__PANEL;
}

/* Sets the bytes of the packed weights of an output. Returns 1 if they overflow. */
static int attn__linear_row(size_t *bytes, int n_in, attn_storage storage)
{
    if (storage != ATTN_Q8) return attn__mul((size_t)n_in, attn__cell(storage), bytes);
    return attn__mul((size_t)attn__blocks(n_in), ATTN__BLOCK + sizeof(float), bytes);
}

/* Sets the bytes of the packed form with its biases, rounded up to 64, so that each of several
   linears begins a cache line. Returns 1 if no object can be that large. */
static int attn__linear_bytes(int n_in, int n_out, attn_storage storage, size_t *bytes)
{
    int refused = attn__linear_row(bytes, n_in, storage);
    refused |= attn__add(*bytes, sizeof(float), bytes);
    refused |= attn__mul(*bytes, attn__up((size_t)n_out, ATTN__PANEL), bytes);
    refused |= *bytes > ATTN__BYTES_MAX;
    *bytes = attn__up(*bytes, 64);
    return refused;
}

/* Returns input `at` of the panel that begins at output `first`. */
static const void *attn__linear_at(const attn_linear *l, int first, int at)
{
    return attn__stored_at(l->w, (ptrdiff_t)first * l->n_in + (ptrdiff_t)at * ATTN__PANEL,
                           l->storage);
}

/* Returns the first block of panel p of weights in 8 bits. */
static const attn__byte_panel *attn__byte_panels(const attn_linear *l, int p)
{
    return (const attn__byte_panel *)l->w + (ptrdiff_t)p * attn__blocks(l->n_in);
}

/* Packs weights from any format into any format. */
typedef struct attn__linear_pack {
    int n_in, n_out;
    const void *w;                        /* [n_out][n_in], in the format `given` */
    attn_storage given, kept;
    char *to;                             /* panels in the format `kept` */
} attn__linear_pack;

/* Returns the address of weight i as given, in ATTN_Q8_0 that of its block. */
static const void *attn__given_at(const void *w, ptrdiff_t i, attn_storage given)
{
    if (given != ATTN_Q8_0) return attn__stored_at(w, i, given);
    return (const char *)w + i / ATTN__BLOCK * ATTN__BLOCK_BYTES;
}

/* Reads the block of weight i in ATTN_Q8_0. Returns 1 if ATTN_Q8 can keep it as it is. */
static int attn__given_block(const attn__linear_pack *job, ptrdiff_t i, float *scale,
                             signed char *n)
{
    const char *block = (const char *)attn__given_at(job->w, i, job->given);
    unsigned short half;
    int t, least = 0;
    memcpy(&half, block, sizeof half);
    memcpy(n, block + sizeof half, ATTN__BLOCK);
    *scale = attn__widen_one(half, ATTN_F16);
    for (t = 0; t < ATTN__BLOCK; t++) least = attn__min(least, n[t]);
    return attn__finite(*scale) && least >= -127;
}

/* Widens `depth` weights, from weight i on, to floats; in ATTN_Q8_0 they are in one block. */
static void attn__given_widen(const attn__kernels *kernels, const attn__linear_pack *job,
                              float *to, ptrdiff_t i, int depth)
{
    signed char n[ATTN__BLOCK];
    float scale;
    int t;
    if (job->given != ATTN_Q8_0) {
        kernels->widen(to, attn__stored_at(job->w, i, job->given), (size_t)depth, job->given);
        return;
    }
    (void)attn__given_block(job, i, &scale, n);
    for (t = 0; t < depth; t++) to[t] = attn__scaled((float)n[i % ATTN__BLOCK + t], &scale);
}

/* Converts inputs at .. at + depth - 1, at most 16, of the panel that begins at output `first` to a
   panel of floats. */
static void attn__linear_gather(const attn__kernels *kernels, const attn__linear_pack *job,
                                float *to, int first, int at, int depth)
{
    float rows[ATTN__PANEL * ATTN__PANEL];
    const int n = attn__min(job->n_out - first, ATTN__PANEL);
    ptrdiff_t from = (ptrdiff_t)first * job->n_in + at;
    int r;
    if (job->given == ATTN_F32) {
        kernels->pack_k(to, (const float *)job->w + from, job->n_in, n, depth);
        return;
    }
    for (r = 0; r < n; r++, from += job->n_in)
        attn__given_widen(kernels, job, rows + r * depth, from, depth);
    kernels->pack_k(to, rows, depth, n, depth);
}

/* Packs weights in 8 bits: rounds each block of an output, unless it is given in 8 bits. */
static void attn__linear_pack_bytes(const attn__kernels *kernels, const attn__linear_pack *job)
{
    attn__byte_panel *to = (attn__byte_panel *)(void *)job->to;
    float floats[ATTN__BLOCK];
    signed char n[ATTN__BLOCK];
    int first, at, depth, lane, i, sum;
    for (first = 0; first < job->n_out; first += ATTN__PANEL)
        for (at = 0; at < job->n_in; at += depth, to++) {
            depth = attn__min(job->n_in - at, ATTN__BLOCK);
            memset(to, 0, sizeof *to);
            for (lane = 0; lane < attn__min(job->n_out - first, ATTN__PANEL); lane++) {
                const ptrdiff_t from = (ptrdiff_t)(first + lane) * job->n_in + at;
                const float *x = floats;
                if (job->given != ATTN_Q8_0 ||
                    !attn__given_block(job, from, to->scale + lane, n)) {
                    if (job->given == ATTN_F32) x = (const float *)job->w + from;
                    else attn__given_widen(kernels, job, floats, from, depth);
                    to->scale[lane] = kernels->round_row(n, x, (size_t)depth, &sum);
                }
                for (i = 0; i < depth; i++) to->n[attn__cell_of((size_t)i, lane, 4)] = n[i];
            }
        }
}

/* Task, because conversion is float arithmetic: packs all panels, 16 inputs of one at a time. A row
   of W becomes a column of the product, as a key does. All backends use the same packed form, so a
   layer may run on any of them. */
static void attn__linear_pack_task(void *arg, int i)
{
    const attn__linear_pack *job = (const attn__linear_pack *)arg;
    const attn__kernels *kernels = attn__table(ATTN_AUTO);
    const int floats = job->kept == ATTN_F32;
    char *to = job->to;
    float piece[ATTN__PANEL * ATTN__PANEL];
    int first, at, depth;
    (void)i;
    if (job->kept == ATTN_Q8) { attn__linear_pack_bytes(kernels, job); return; }
    for (first = 0; first < job->n_out; first += ATTN__PANEL)
        for (at = 0; at < job->n_in; at += depth) {
            depth = attn__min(job->n_in - at, ATTN__PANEL);
            attn__linear_gather(kernels, job, floats ? (float *)(void *)to : piece, first, at,
                                depth);
            if (!floats) kernels->narrow(to, piece, ATTN__PANEL * (size_t)depth, job->kept);
            to += ATTN__PANEL * attn__row_bytes((size_t)depth, job->kept);
        }
}

/* ---- packed memory --------------------------------------------------------------------------- */
enum {
    ATTN__PACKED_LAYOUT = 2,              /* number of the layout; changes with any change of it */
    ATTN__PACKED_HEAD = 128,              /* bytes of the header: panels begin a cache line */
    ATTN__PACKED_END = 64,                /* bytes after the content; mem is aligned with 63 of
                                             them */
    ATTN__PACKED_PARTS = 4,               /* outputs of the optional part i are at size[4 + i] */
    ATTN__PACKED_SIZES = 27
};
/* the values of attn__packed_head.size, as sentences name them */
static const char *const attn__linear_sizes[] = { "n_in", "n_out", NULL };
static const char *const attn__mha_sizes_packed[] = {
    "d_model", "heads", "kv_heads", "head_dim", "v_head_dim", "d_key", "d_value", "q_only",
    "gate_rows", "the width of q_norm", "the width of k_norm", "the width of q_norm_b",
    "the width of k_norm_b", NULL
};
/* Header of packed memory, in the byte order of the machine. */
typedef struct attn__packed_head {
    char magic[8];                        /* ATTN__PACKED_MAGIC */
    int layout;
    int layer;                            /* 1: of a layer; 0: of a linear */
    int storage;
    int size[ATTN__PACKED_SIZES];         /* unused ones are 0 */
} attn__packed_head;
typedef char attn__packed_head_fits[sizeof(attn__packed_head) == ATTN__PACKED_HEAD ? 1 : -1];
#define ATTN__PACKED_MAGIC "attn.wt"

/* Packed memory as init walks through it, from part to part. */
typedef struct attn__packer {
    const char *at;                       /* the next part */
    char *to;                             /* `at`, to be written; NULL: an earlier init filled it */
    void *own;                            /* the memory, if it was allocated */
} attn__packer;

/* Copies the header of packed memory. Rejects another kind, layout or byte order. */
static attn_status attn__packed_read(attn__why *why, const void *packed, size_t size, int layer,
                                     attn__packed_head *head)
{
    const char *const kind = layer ? "a layer" : "a linear";
    ATTN__TRY(attn__check_align(why, "packed", packed, 64));
    if (size < sizeof *head)
        return attn__fail(why, ATTN_E_BYTES, "packed_size is %lld: packed has no header",
                          (long long)size);
    memcpy(head, packed, sizeof *head);
    if (memcmp(head->magic, ATTN__PACKED_MAGIC, sizeof head->magic))
        return attn__fail(why, ATTN_E_BYTES, "packed does not begin with the header of %s; mem "
                          "must begin at a multiple of 64 to be saved", kind);
    if (head->layout != ATTN__PACKED_LAYOUT)
        return attn__fail(why, ATTN_E_BYTES, "packed has the layout %d but %d is known: pack the "
                          "weights again", head->layout, ATTN__PACKED_LAYOUT);
    if (head->layer != layer)
        return attn__fail(why, ATTN_E_BYTES, "packed does not hold %s", kind);
    return ATTN_OK;
}

/* Checks the header of packed memory against the one that init would write, and its size. */
static attn_status attn__packed_check(attn__why *why, const attn__packed_head *head,
                                      const attn__packed_head *want, size_t size, size_t bytes)
{
    const char *const *const names = want->layer ? attn__mha_sizes_packed : attn__linear_sizes;
    const attn__pair storage = { "storage", head->storage, want->storage };
    int i;
    ATTN__TRY(attn__check_same(why, " in packed", " here", &storage, 1));
    for (i = 0; names[i]; i++) {
        const attn__pair pair = { names[i], head->size[i], want->size[i] };
        ATTN__TRY(attn__check_same(why, " in packed", " here", &pair, 1));
    }
    if (size < bytes - ATTN__PACKED_END)
        return attn__fail(why, ATTN_E_BYTES, "packed_size is %lld but these sizes take %lld",
                          (long long)size, (long long)bytes);
    return ATTN_OK;
}

/* Begins a walk through packed memory. `packed`: an earlier init has filled it. Otherwise takes
   `bytes` bytes at mem, or allocates them, and writes the header and the zeros that follow the
   content. */
static attn_status attn__packed_begin(attn__why *why, attn__packer *p,
                                      const attn__packed_head *head, const void *packed, void *mem,
                                      size_t mem_size, size_t bytes)
{
    char *to = NULL;
    p->to = NULL;
    p->own = NULL;
    if (packed) {
        p->at = (const char *)packed + sizeof *head;
        return ATTN_OK;
    }
    ATTN__TRY(attn__check_memory(why, "mem_size",
                                 head->layer ? "attn_mha_size" : "attn_linear_size", mem, mem_size,
                                 bytes));
    ATTN__TRY(attn__allocate(why, mem, bytes, "the weights", &p->own, &to));
    memcpy(to, head, sizeof *head);
    /* `to` is the first multiple of 64, at most 63 bytes after the first byte. */
    memset(to + (bytes - ATTN__PACKED_END), 0,
           (size_t)ATTN__PACKED_END - (size_t)(to - (const char *)(p->own ? p->own : mem)));
    p->at = p->to = to + sizeof *head;
    return ATTN_OK;
}

/* Returns the outputs of the packed form: weights and biases are padded to whole panels. */
static size_t attn__linear_padded(const attn_linear *l)
{
    return attn__up((size_t)l->n_out, ATTN__PANEL);
}

static size_t attn__linear_weights_bytes(const attn_linear *l)
{
    size_t row;
    (void)attn__linear_row(&row, l->n_in, l->storage);
    return attn__linear_padded(l) * row;
}

/* Makes a linear of the next part; packs w, in the format `given`, and b into it, unless an earlier
   init has packed them. */
static void attn__packed_linear(attn__packer *p, attn_linear *l, int n_in, int n_out,
                                attn_storage kept, const void *w, attn_storage given,
                                const float *b)
{
    attn_linear packed = { n_in, n_out, kept, p->at, NULL, NULL, NULL };
    const size_t weights = attn__linear_weights_bytes(&packed);
    const size_t all = attn__up(weights + attn__linear_padded(&packed) * sizeof(float), 64);
    packed.b = (const float *)(const void *)(p->at + weights);
    *l = packed;
    p->at += all;
    if (p->to) {
        attn__linear_pack job = { n_in, n_out, w, given, kept, p->to };
        attn__run(NULL, 1, 0, attn__linear_pack_task, &job);
        /* Outputs that pad the last panel are computed like all others, and so have biases:
           zeros. */
        memset(p->to + weights, 0, all - weights);
        if (b) memcpy(p->to + weights, b, (size_t)n_out * sizeof(float));
        p->to += all;
    }
}

/* ---- linears: init and run ------------------------------------------------------------------- */
/* Checks the format of weights as given. */
static attn_status attn__check_w_storage(attn__why *why, attn_storage given)
{
    if (given == ATTN_Q8_0 || (unsigned)given < (unsigned)ATTN_Q8) return ATTN_OK;
    return attn__fail(why, ATTN_E_OPTION, "w_storage is %d but its values are 0, 1, 2 and 4",
                      (int)given);
}

/* Checks that the blocks of weights as given end with their inputs. */
static attn_status attn__check_blocks(attn__why *why, const char *name, int n_in,
                                      attn_storage given)
{
    if (given != ATTN_Q8_0 || n_in % ATTN__BLOCK == 0) return ATTN_OK;
    return attn__fail(why, ATTN_E_SIZE, "%s is %d but blocks of ATTN_Q8_0 have %d inputs", name,
                      n_in, ATTN__BLOCK);
}

/* Checks sizes and formats; *bytes becomes the memory they need. */
static attn_status attn__linear_check(const attn_linear_args *a, size_t *bytes, attn__why *why)
{
    if (!a) return attn__fail(why, ATTN_E_NULL, "the attn_linear_args are NULL");
    ATTN__TRY(attn__check_storage(why, "storage", a->storage, ATTN__FORMATS));
    ATTN__TRY(attn__check_w_storage(why, a->w_storage));
    ATTN__TRY(attn__check_size(why, "n_in", a->n_in, 1));
    ATTN__TRY(attn__check_size(why, "n_out", a->n_out, 1));
    ATTN__TRY(attn__check_blocks(why, "n_in", a->n_in, a->w_storage));
    if (attn__linear_bytes(a->n_in, a->n_out, a->storage, bytes))
        return attn__fail(why, ATTN_E_OVERFLOW, "n_in %d times n_out %d weights do not fit the "
                          "address space", a->n_in, a->n_out);
    *bytes += (size_t)ATTN__PACKED_HEAD + (size_t)ATTN__PACKED_END;
    return ATTN_OK;
}

static attn_status attn__check_linear(attn__why *why, const attn_linear *l)
{
    if (l && l->w) return ATTN_OK;
    return attn__fail(why, ATTN_E_NULL, "l is not a linear that attn_linear_init has made");
}

ATTNDEF size_t attn_linear_size(const attn_linear_args *a)
{
    attn__why why;
    size_t bytes = 0;
    attn__why_open(&why, "attn_linear_size", a ? a->user : NULL);
    return attn__linear_check(a, &bytes, &why) == ATTN_OK ? bytes : (size_t)-1;
}

/* Checks w and b as given, or the packed memory against the expected header. */
static attn_status attn__linear_weights(const attn_linear_args *a, const attn__packed_head *want,
                                        size_t bytes, attn__why *why)
{
    attn__packed_head head;
    if (!a->packed) {
        if (!a->w) return attn__fail(why, ATTN_E_NULL, "w is NULL, and so is packed");
        ATTN__TRY(attn__check_values(why, "w", a->w, a->w_storage));
        return attn__check_align(why, "b", a->b, ATTN__CELL_ALIGN);
    }
    ATTN__TRY(attn__check_beside(why, "packed", a->w ? "w" : a->b ? "b" : NULL));
    ATTN__TRY(attn__packed_read(why, a->packed, a->packed_size, 0, &head));
    return attn__packed_check(why, &head, want, a->packed_size, bytes);
}

ATTNDEF attn_status attn_linear_init(attn_linear *l, const attn_linear_args *a)
{
    attn__why why;
    attn__packed_head head = { ATTN__PACKED_MAGIC, ATTN__PACKED_LAYOUT, 0, 0, { 0 } };
    attn__packer p;
    size_t bytes = 0;                     /* gcc does not see that the check sets it */
    attn__why_open(&why, "attn_linear_init", a ? a->user : NULL);
    if (!l) return attn__fail(&why, ATTN_E_NULL, "the attn_linear is NULL");
    /* Zeroed first: every call rejects a linear without weights. */
    memset(l, 0, sizeof *l);
    ATTN__TRY(attn__linear_check(a, &bytes, &why));
    head.storage = (int)a->storage;
    head.size[0] = a->n_in;
    head.size[1] = a->n_out;
    ATTN__TRY(attn__linear_weights(a, &head, bytes, &why));
    ATTN__TRY(attn__packed_begin(&why, &p, &head, a->packed, a->mem, a->mem_size, bytes));
    attn__packed_linear(&p, l, a->n_in, a->n_out, a->storage, a->w, a->w_storage, a->b);
    l->user = a->user;
    l->own = p.own;
    return ATTN_OK;
}

/* Checks the arrays of a call. y is an output. */
static attn_status attn__linear_places(attn__why *why, const attn_linear *l, const char *y_name,
                                       const float *y, size_t y_bytes, const float *x,
                                       size_t x_bytes)
{
    const attn__array array[] = {
        { y_name, y, y_bytes, 1 }, { "x", x, x_bytes, 1 },
        { "w", l->w, attn__linear_weights_bytes(l), 1 },
        { "b", l->b, attn__linear_padded(l) * sizeof(float), 1 }
    };
    return attn__check_arrays(why, array, 4, 1);
}

/* Task, because widening is float arithmetic: rows of the weights as floats. */
typedef struct attn__linear_reading {
    const attn_linear *l;
    float *out;
    int row, n;
} attn__linear_reading;

static void attn__linear_read_task(void *arg, int unused)
{
    const attn__linear_reading *job = (const attn__linear_reading *)arg;
    const attn_linear *l = job->l;
    float *out = job->out;
    int row, i;
    (void)unused;
    for (row = job->row; row < job->row + job->n; row++) {
        const int lane = row % ATTN__PANEL;
        const void *w = attn__linear_at(l, row - lane, 0);
        for (i = 0; i < l->n_in; i++, out++) {
            if (l->storage == ATTN_Q8) {
                const attn__byte_panel *block = attn__byte_panels(l, row / ATTN__PANEL) +
                                                i / ATTN__BLOCK;
                *out = attn__scaled(attn__stored(block->n, lane, (size_t)(i % ATTN__BLOCK),
                                                 ATTN_Q8), block->scale + lane);
                continue;
            }
            const void *from = attn__stored_at(w, (ptrdiff_t)i * ATTN__PANEL + lane, l->storage);
            if (l->storage == ATTN_F32) memcpy(out, from, sizeof *out);
            else attn__widen_scalar(out, from, 1, l->storage);
        }
    }
}

ATTNDEF attn_status attn_linear_read(const attn_linear *l, int row, int n, float *out)
{
    attn__linear_reading job = { l, out, row, n };
    attn__why why;
    size_t bytes;
    attn__why_open(&why, "attn_linear_read", l ? l->user : NULL);
    ATTN__TRY(attn__check_linear(&why, l));
    ATTN__TRY(attn__check_size(&why, "row", row, 0));
    ATTN__TRY(attn__check_size(&why, "n", n, 0));
    if (row > l->n_out || n > l->n_out - row)
        return attn__fail(&why, ATTN_E_SIZE, "row is %d and n is %d but n_out is %d", row, n,
                          l->n_out);
    if (attn__bytes(&bytes, n, l->n_in, 1, 1, sizeof(float)))
        return attn__fail(&why, ATTN_E_OVERFLOW, "n %d rows of n_in %d do not fit the address "
                          "space", n, l->n_in);
    ATTN__TRY(attn__linear_places(&why, l, "out", out, bytes, NULL, 0));
    attn__run(NULL, 1, 0, attn__linear_read_task, &job);
    return ATTN_OK;
}

ATTNDEF void attn_linear_free(attn_linear *l) { if (l) attn__drop(l, sizeof *l, l->user, l->own); }

/* Replaces each NaN by the one NaN, because processors differ in sign and payload. Nearly all
   blocks have none and cost only the scan. */
static void attn__linear_nan(const attn__kernels *kernels, float *y, ptrdiff_t row, int rows,
                             int n_panels)
{
    attn__gemm block;
    int r, x;
    /* The kernel scans the right-hand side of a product: y is passed as one that has a step for
       each row. The scalar backend has no such kernel, and scans every float here. */
    memset(&block, 0, sizeof block);
    block.b = y;
    block.b_step = row;
    block.b_panel = ATTN__PANEL;
    block.n_panels = n_panels;
    block.depth = rows;
    if (kernels->not_finite && !kernels->not_finite(&block)) return;
    for (r = 0; r < rows; r++, y += row)
        for (x = 0; x < n_panels * ATTN__PANEL; x++)
            if (y[x] != y[x]) y[x] = attn__nan();
}

/* Rows of x for a linear. */
typedef struct attn__linear_job {
    const attn__kernels *kernels;
    const attn_linear *l;
    const float *x;                       /* the first row */
    ptrdiff_t x_row;                      /* floats from row to row of x */
    float *held;  /* room for a piece of a panel of floats, and after it for chains between two
                     pieces; NULL: the linear's own panels are read */
} attn__linear_job;

/* Computes a chain of one panel that is widened in pieces. As many rows as have room keep their
   chains from piece to piece; the next rows find the weights in cache. */
static void attn__linear_pieces(const attn__linear_job *job, const attn__gemm *all, int p,
                                int first)
{
    float *chain = job->held + (int)ATTN__LINEAR_PIECE * (int)ATTN__PANEL;
    const int end = first + all->depth;
    attn__gemm g = *all;
    int r, at;
    g.b = job->held;
    for (r = 0; r < all->rows; r += ATTN__LINEAR_SHARE) {
        g.rows = attn__min(all->rows - r, ATTN__LINEAR_SHARE);
        g.from = all->from;               /* a bias, shared by all rows */
        g.from_row = 0;
        for (at = first; at < end; at += g.depth) {
            const int last = end - at <= ATTN__LINEAR_PIECE;
            g.depth = attn__min(end - at, ATTN__LINEAR_PIECE);
            g.a = all->a + r * all->a_row + (at - first);
            g.c = last ? all->c + r * all->c_row : chain;
            g.c_row = last ? all->c_row : (int)ATTN__PANEL;
            g.fold_a = g.fold_b = last ? all->fold_a : NULL;     /* ones, shared by all rows */
            job->kernels->widen(job->held, attn__linear_at(job->l, p * ATTN__PANEL, at),
                                (size_t)(g.depth * ATTN__PANEL), job->l->storage);
            job->kernels->gemm(&g);
            g.from = chain;
            g.from_row = ATTN__PANEL;
        }
    }
}

/* Returns 1 if several rows read their weights from memory. Then a few panels are read through all
   inputs, and they prefetch the next panels in the order of memory: 5 rows take 0.36 to 0.7 of the
   time, 96 rows 0.75. From a cache this would be slower. No kernel of two rows prefetches. */
static int attn__linear_is_far(const attn_linear *l, int rows)
{
    return rows > 2 && l->n_in <= ATTN__LINEAR_NEAR / rows &&
           attn__linear_weights_bytes(l) >= (size_t)ATTN__LINEAR_FAR;
}

/* Returns the max rows of a block. */
static int attn__linear_height(const attn_linear *l)
{
    return attn__linear_weights_bytes(l) >= (size_t)ATTN__LINEAR_LARGE &&
           !attn__linear_is_far(l, ATTN__LINEAR_ROWS) ? ATTN__LINEAR_HIGH : ATTN__LINEAR_ROWS;
}

/* Computes at most ATTN__LINEAR_HIGH rows, times the output panels from <= p < to. y begins at the
   first of these; rows of y are y_row floats apart, and panels are written whole. The first chain
   begins at the bias. Later chains begin at +0 and are added by the fold of the product, with
   factors of 1, which do not round. */
static void attn__linear_block(const attn__linear_job *job, float *y, ptrdiff_t y_row,
                               int rows, int from, int to)
{
    const attn_linear *l = job->l;
    const int most = job->held ? 1 : (int)ATTN__LINEAR_PANELS;
    const int twice = l->storage != ATTN_F32 && l->n_in <= ATTN__LINEAR_SHORT;
    const int streams = (twice ? 2 : 1) * (int)ATTN__LINEAR_ROW_PANELS;
    const int ahead = (int)ATTN__LINEAR_AHEAD / (twice ? 2 : 1);
    const int is_far = !job->held && attn__linear_is_far(l, rows);
    const int group = is_far ? (int)ATTN__LINEAR_FAR_PANELS
                    : rows == 1 && l->n_in > ATTN__LINEAR_CHAIN ? streams
                    : (int)ATTN__LINEAR_PANELS;
    float ones[ATTN__LINEAR_HIGH];
    attn__gemm g;
    int first, at, p;
    memset(&g, 0, sizeof g);
    g.a_row = job->x_row;
    g.b_step = ATTN__PANEL;
    g.b_panel = (ptrdiff_t)l->n_in * ATTN__PANEL;
    g.c_row = y_row;
    g.rows = rows;
    if (!job->held) g.stored = l->storage;
    /* The factors are used only if there is a second chain. */
    if (l->n_in > ATTN__LINEAR_CHAIN)
        for (p = 0; p < rows; p++) ones[p] = 1.0f;
    /* 16 panels at a time, chain by chain: 256 inputs of all rows and the outputs of these panels
       stay in L2. A single row stays in L1, so it reads a few panels through all inputs, in few
       long streams: 4 panels, or 8 if the row is short and the weights have 16 bits. */
    for (first = from; first < to; first += group)
        for (at = 0; at < l->n_in; at += ATTN__LINEAR_CHAIN)
            for (p = first; p < attn__min(first + group, to); p += g.n_panels) {
                const int x = (p - from) * ATTN__PANEL;
                g.n_panels = attn__min(attn__min(first + group, to) - p, most);
                g.a = job->x + at;
                g.c = y + x;
                g.depth = attn__min(l->n_in - at, ATTN__LINEAR_CHAIN);
                g.from = at == 0 ? l->b + p * ATTN__PANEL : NULL;
                g.fold_a = g.fold_b = at == 0 ? NULL : ones;
                g.b = attn__linear_at(l, p * ATTN__PANEL, at);
                /* One row of 16 bits prefetches each panel one or two KB ahead. Floats would gain
                   nothing. */
                if (rows == 1 && g.stored != ATTN_F32 && at + ahead < l->n_in)
                    g.prefetch = attn__linear_at(l, p * ATTN__PANEL, at + ahead);
                else if (is_far && first + 2 * group <= to)
                    g.prefetch = attn__linear_at(l, (first + group) * ATTN__PANEL, at * group);
                else g.prefetch = NULL;
                if (job->held) attn__linear_pieces(job, &g, p, at);
                else job->kernels->gemm(&g);
                /* After the last chain the outputs are final. */
                if (l->n_in - at <= ATTN__LINEAR_CHAIN)
                    attn__linear_nan(job->kernels, g.c, y_row, rows, g.n_panels);
            }
}

/* The same if n_out may end inside the last panel: a product would overwrite the beginning of the
   next row, so it writes to a tile, and the valid outputs are copied. */
static void attn__linear_rows(attn__linear_job *job, float *y, int rows, int from, int to)
{
    const attn_linear *l = job->l;
    const int full = attn__min(to, l->n_out / ATTN__PANEL);
    /* Kernels prefer pairs of panels: an odd last full panel also goes through the tile. */
    const int whole = full < to ? full - (full - from) % 2 : full;
    const int left = l->n_out - whole * ATTN__PANEL, width = (to - whole) * ATTN__PANEL;
    float tile[(int)ATTN__LINEAR_TILE * (int)ATTN__PANEL];
    int r, i, n = 0;
    y += from * ATTN__PANEL;
    attn__linear_block(job, y, l->n_out, rows, from, whole);
    if (whole == to) return;
    y += (whole - from) * ATTN__PANEL;
    /* job->x advances with the rows, because chains read there. */
    for (r = 0; r < rows; r += n) {
        if (r > 0) job->x += n * job->x_row;
        n = attn__min(rows - r, ATTN__LINEAR_TILE / (to - whole));
        attn__linear_block(job, tile, width, n, whole, to);
        for (i = 0; i < n; i++, y += l->n_out)
            memcpy(y, tile + i * width, (size_t)left * sizeof(float));
    }
}

/* Provides room on the stack for a piece of a panel of floats, and for chains of the rows that
   share it, aligned to a cache line, because vectors across two lines take twice as long. Not
   inlined, so that other linears do not need these 3.5 KB. */
static ATTN__NOINLINE void attn__linear_held(attn__linear_job *job, float *y, int rows, int from,
                                             int to)
{
    float held[((int)ATTN__LINEAR_PIECE + (int)ATTN__LINEAR_SHARE) * (int)ATTN__PANEL + 16];
    job->held = held + (64 - (size_t)held % 64) % 64 / sizeof(float);
    attn__linear_rows(job, y, rows, from, to);
    job->held = NULL;                     /* `held` ends here; the job continues */
}

/* Computes rows over weights in 8 bits. As many blocks of some rows of x are rounded as have room
   on the stack: 7.5 KB. Then a few panels at a time are multiplied by these, because long pieces of
   memory are read faster: 5 rows take 0.5 of the time of one chain through all panels (AVX-512 and
   AVX2, with the prefetches of the kernel). Not inlined, for the same reason. */
static ATTN__NOINLINE void attn__linear_bytes_rows(const attn__linear_job *job, float *y, int rows,
                                                   int from, int to)
{
    enum { PANELS = ATTN__LINEAR_ROW_PANELS };
    attn__byte_block x[(int)ATTN__LINEAR_SHARE * (int)ATTN__BLOCKS];
    const attn_linear *l = job->l;
    const int blocks = attn__blocks(l->n_in);
    attn__byte_linear g;
    int r, i, b, n, p, at, chain;
    g.w_panel = blocks;
    g.y_row = l->n_out;
    for (r = 0; r < rows; r += g.rows) {
        g.rows = attn__min(rows - r, ATTN__LINEAR_SHARE);
        g.x_row = (int)ATTN__LINEAR_SHARE / g.rows * (int)ATTN__BLOCKS;
        for (at = 0; at < blocks; at += g.x_row) {
            n = attn__min(blocks - at, g.x_row);
            for (i = 0; i < g.rows; i++)
                for (b = 0; b < n; b++) {
                    attn__byte_block *block = x + i * g.x_row + b;
                    const int first = (at + b) * ATTN__BLOCK;
                    const int depth = attn__min(l->n_in - first, ATTN__BLOCK);
                    if (depth < ATTN__BLOCK) memset(block->n, 0, sizeof block->n);
                    block->scale = job->kernels->round_row(
                        block->n, job->x + (r + i) * job->x_row + first, (size_t)depth,
                        &block->sum);
                }
            for (p = from; p < to; p += PANELS)
                for (chain = 0; chain < n; chain += ATTN__BLOCKS) {
                    g.x = x + chain;
                    g.w = attn__byte_panels(l, p) + at + chain;
                    g.bias = at + chain == 0 ? l->b + p * ATTN__PANEL : NULL;
                    g.y = y + (ptrdiff_t)r * l->n_out + p * ATTN__PANEL;
                    g.columns = attn__min(attn__min(p + PANELS, to) * ATTN__PANEL, l->n_out) -
                                p * ATTN__PANEL;
                    g.blocks = attn__min(n - chain, ATTN__BLOCKS);
                    job->kernels->linear_bytes(&g);
                }
        }
    }
}

/* Rows of a source; ragged entries count as one. */
typedef struct attn__rows {
    int entries, each;                    /* entries, and rows of each */
    const int *from, *to;  /* [entries] the rows that exist; NULL: from 0, to the last */
    const int *cum;                       /* first rows of ragged entries, or NULL */
} attn__rows;

/* y [entries][each][n_out] from x [entries][each][n_in]. Rows of padding are neither read nor
   written. */
typedef struct attn__project {
    attn__linear_job job;
    float *y;
    attn__rows rows;
    int together;                         /* entries of one task */
    int blocks, groups;  /* tasks per entry: blocks of rows, groups of output panels */
} attn__project;

/* Finds the next run of rows without padding between them, from entry *e on and before entry
   `last`: the product treats a run as one entry. Returns its number of rows; sets *first to its
   first row, *e to the entry after it. */
static int attn__project_rows(const attn__rows *x, int *e, int last, int *first)
{
    int end;
    *first = *e * x->each + (x->from ? x->from[*e] : 0);
    do {
        end = *e * x->each + (x->to ? x->to[*e] : x->each);
        ++*e;
    } while (*e < last && *e * x->each + (x->from ? x->from[*e] : 0) == end);
    return end - *first;
}

/* Computes rows of x from `first` on, output panels from .. to - 1. */
static void attn__project_block(const attn__project *p, int first, int rows, int from, int to)
{
    attn__linear_job job = p->job;
    float *y = p->y + (ptrdiff_t)first * job.l->n_out;
    job.x += first * job.x_row;
    /* If products do not read this format, pieces are widened to floats: with AVX2 1.2 to 3.2 times
       the time of widening in registers. */
    if (job.l->storage == ATTN_Q8) attn__linear_bytes_rows(&job, y, rows, from, to);
    else if (!job.kernels->reads(job.l->storage)) attn__linear_held(&job, y, rows, from, to);
    else attn__linear_rows(&job, y, rows, from, to);
}

static int attn__project_tasks(const attn__project *p)
{
    return (p->rows.entries + p->together - 1) / p->together * p->blocks * p->groups;
}

/* Task: a block of rows times a group of panels. The tasks of all jobs are numbered consecutively,
   so the task finds its job by counting down. */
static void attn__project_task(void *arg, int i)
{
    const attn__project *p = (const attn__project *)arg;
    int tasks, panels, before, group, entry, last, from, to, end, e, first, rows;
    for (; i >= (tasks = attn__project_tasks(p)); p++) i -= tasks;
    panels = attn__linear_panels(p->job.l);
    /* Neighbouring tasks read the same rows of x, and different weights. */
    group = i % p->groups;
    before = i / p->groups % p->blocks * attn__linear_height(p->job.l);
    entry = i / p->groups / p->blocks * p->together;
    last = attn__min(entry + p->together, p->rows.entries);
    from = (int)((long long)panels * group / p->groups);
    end = (int)((long long)panels * (group + 1) / p->groups);
    /* Several short entries may form several runs of rows, and each run reads all weights. So all
       runs take a few panels through all inputs before the next panels: these stay in L2 from one
       run to the next. */
    for (; from < end; from = to) {
        to = last - entry > 1 ? attn__min(from + ATTN__LINEAR_PANELS, end) : end;
        for (e = entry; e < last;) {
            rows = attn__project_rows(&p->rows, &e, last, &first) - before;
            rows = attn__min(rows, attn__linear_height(p->job.l));
            if (rows > 0) attn__project_block(p, first + before, rows, from, to);
        }
    }
}

/* Runs several linears with one start of the executor. Tasks are blocks of rows; if there are fewer
   than four per thread, the output panels are divided too, if that pays. This does not change
   results. more: multiply-adds of a row, at most, in the jobs that follow these linears in the same
   call. A thread is woken if all work of the call pays for that, early enough for these jobs. */
static void attn__project_run(const attn_exec *exec, attn__project *job, int n,
                              unsigned long long more)
{
    /* The sum of the tasks of four jobs must fit an int. */
    const int width = exec ? attn__min(exec->width, INT_MAX / 16) : 1;
    const long long wanted = width > 1 ? 4LL * width : 1;
    int i, tasks = 0, rows = ATTN__SHORT_ROWS;
    for (i = 0; i < n; i++) {
        attn__project *p = job + i;
        const attn_linear *l = p->job.l;
        attn__rows *x = &p->rows;
        const int height = attn__linear_height(l);
        long long most;
        /* Without padding all entries are one run. */
        if (!x->from && !x->to) {
            x->each *= x->entries;
            x->entries = x->each > 0;
        }
        /* Short entries share a task, so that the weights are read once for all of them. */
        p->together = x->each > 0 && x->each < ATTN__PANEL ? ATTN__LINEAR_ROWS / x->each : 1;
        p->blocks = (x->each + height - 1) / height;
        p->groups = 1;
        if (attn__project_tasks(p) == 0) continue;
        /* Panels are divided into as many groups as threads can use, but each task gets enough work
           to be worth its start, and at least four panels. */
        most = attn__min(x->each * attn__min(p->together, x->entries), height);
        most = most * l->n_in * l->n_out / 32768;
        if (most > attn__linear_panels(l) / 4) most = attn__linear_panels(l) / 4;
        if (most > wanted / attn__project_tasks(p)) most = wanted / attn__project_tasks(p);
        if (most > 1) p->groups = (int)most;
        tasks += attn__project_tasks(p);
        rows = attn__max(x->each * x->entries, rows);
        more += (unsigned long long)l->n_in * (unsigned)l->n_out;
    }
    attn__run(exec, tasks, !attn__is_short((unsigned)rows, more), attn__project_task, job);
}

/* Sets *bytes to the bytes of `rows` rows of n floats, from the first float to the end of the last.
   stride: floats from row to row, 0: n. Returns 1 if no object can be that large. */
static int attn__row_span(size_t *bytes, int rows, int n, ptrdiff_t stride)
{
    *bytes = 0;
    if (rows == 0) return 0;
    return attn__mul(stride ? (size_t)stride : (size_t)n, (size_t)rows - 1, bytes) ||
           attn__add(*bytes, (size_t)n, bytes) || attn__mul(*bytes, sizeof(float), bytes) ||
           *bytes > ATTN__BYTES_MAX;
}

/* Checks a call. A separate function, so that its stack frame is free when the linear runs. */
static ATTN__NOINLINE attn_status attn__linear_ready(const attn_linear *l, const float *y,
                                                     const float *x, int rows,
                                                     ptrdiff_t x_stride, const attn_exec *exec)
{
    attn__why why;
    size_t x_bytes, y_bytes;
    attn__why_open(&why, "attn_linear_run", l ? l->user : NULL);
    ATTN__TRY(attn__check_linear(&why, l));
    ATTN__TRY(attn__check_size(&why, "rows", rows, 0));
    if (x_stride < 0)
        return attn__fail(&why, ATTN_E_STRIDE, "x_stride is %lld but must not be negative",
                          (long long)x_stride);
    ATTN__TRY(attn__check_exec(exec, &why));
    if (attn__row_span(&x_bytes, rows, l->n_in, x_stride) ||
        attn__bytes(&y_bytes, rows, l->n_out, 1, 1, sizeof(float)))
        return attn__fail(&why, ATTN_E_OVERFLOW, "%d rows of n_in %d and n_out %d do not fit the "
                          "address space", rows, l->n_in, l->n_out);
    return attn__linear_places(&why, l, "y", y, y_bytes, x, x_bytes);
}

ATTNDEF attn_status attn_linear_run(const attn_linear *l, float *y, const float *x, int rows,
                                    ptrdiff_t x_stride, const attn_exec *exec)
{
    attn__project p = { { attn__table(ATTN_AUTO), l, x, x_stride, NULL }, y,
                        { 1, rows, NULL, NULL, NULL }, 0, 0, 0 };
    ATTN__TRY(attn__linear_ready(l, y, x, rows, x_stride, exec));
    if (x_stride == 0) p.job.x_row = l->n_in;
    if (rows > 0) attn__project_run(exec, &p, 1, 0);
    return ATTN_OK;
}

/* ---- rotary embedding ---------------------------------------------------------------------------
   The table is computed in 64-bit integers: no compiler (contraction), rounding mode or libm can
   change a bit. An angle is a fraction of a full turn in units of 2^-64; multiplied by a position
   it wraps around as angles do, so no other range reduction is needed. Sums are accurate to about
   2^-60; the only other rounding is the final one to float. */
typedef unsigned long long attn__fixed;

/* Returns a * b / 2^64, rounded down, from four products of halves, because C99 has no 128-bit
   type. */
static attn__fixed attn__fixed_mul(attn__fixed a, attn__fixed b)
{
    const attn__fixed low = 0xFFFFFFFFu, a1 = a >> 32, a0 = a & low, b1 = b >> 32, b0 = b & low;
    const attn__fixed mid = a1 * b0 + (a0 * b0 >> 32), mid2 = a0 * b1 + (mid & low);
    return a1 * b1 + (mid >> 32) + (mid2 >> 32);
}

enum { ATTN__TERMS = 22 };                /* of a series: 1/22! is below 2^-69 */

/* Sets c[k] = 1/k!. */
static void attn__factorials(attn__fixed *c)
{
    int k;
    c[0] = (attn__fixed)1 << 63;
    for (k = 1; k < ATTN__TERMS; k++) c[k] = c[k - 1] / (attn__fixed)k;
}

/* Returns c[first] - z c[first + step] + z^2 c[first + 2 step] - ... z is in units of 2^-64; c[k] =
   1/k! and the sum are in units of 2^-63. With step 1 this is exp(-z). With z = x^2 and step 2 it
   is cos(x) for first 0, sin(x)/x for first 1. Horner's rule from the last term keeps every value
   positive, so unsigned numbers suffice. */
static attn__fixed attn__series(const attn__fixed *c, attn__fixed z, int first, int step)
{
    int k = first;
    attn__fixed sum;
    while (k + step < ATTN__TERMS) k += step;
    for (sum = c[k]; k > first; k -= step) sum = c[k - step] - attn__fixed_mul(z, sum);
    return sum;
}

/* Returns x, in units of 2^-63, rounded to nearest even. */
static float attn__fixed_float(attn__fixed x, int negative)
{
    unsigned exponent = 127, rest;
    if (x == 0) return 0.0f;
    /* Normalised: shifted until the first bit is 1. */
    while (!(x >> 63)) { x <<= 1; exponent--; }
    rest = (unsigned)(x >> 40);  /* 24 bits, the first is 1 */
    x &= ((attn__fixed)1 << 40) - 1;
    if (x > (attn__fixed)1 << 39 || (x == (attn__fixed)1 << 39 && (rest & 1u))) rest++;
    /* A carry of the rounding correctly increments the exponent. */
    return attn__float((exponent << 23) + (rest - (1u << 23)) + (negative ? 1u << 31 : 0));
}

/* Returns f * 2^power / (2 pi) in turns, f in units of 2^-64. Whole turns are dropped. */
static attn__fixed attn__turns(attn__fixed f, int power)
{
    /* 2^66 / (2 pi) is the largest such factor that fits, hence the doubling. */
    f = attn__fixed_mul(f, 0xA2F9836E4E44152Au);
    power -= 2;
    if (power >= 0) return f << power;  /* frequencies are below 2^16 */
    /* A shift down rounds by the last bit shifted out. */
    return power > -64 ? (f >> -power) + (f >> (-power - 1) & 1) : 0;
}

/* Returns base^(-2i / rotary_dim) as f * 2^-down, f in units of 2^-63; log2(base) = whole +
   fraction. The result is 2^-e with e = 2i * log2(base) / rotary_dim: the whole part of e becomes a
   shift, the rest goes through the series of exp. */
static attn__fixed attn__base_power(const attn__fixed *c, attn__fixed whole, attn__fixed fraction,
                                    int i, int rotary_dim, int *down)
{
    const attn__fixed low = 0xFFFFFFFFu, m = 2 * (attn__fixed)i, d = (attn__fixed)rotary_dim;
    const attn__fixed p0 = (fraction & low) * m, p1 = (fraction >> 32) * m + (p0 >> 32);
    /* m * log2(base) has the digits n, p1, p0 of 32 bits. They are divided by d one after the
       other, with the remainder carried down: long division. */
    const attn__fixed n = whole * m + (p1 >> 32);
    const attn__fixed n1 = (n % d << 32) | (p1 & low), n0 = (n1 % d << 32) | (p0 & low);
    const attn__fixed below = (n1 / d << 32) | n0 / d;
    *down = (int)(n / d);
    /* 2^-below = exp(-below ln 2); the constant is 2^64 ln 2. */
    return attn__series(c, attn__fixed_mul(below, 0xB17217F7D1CF79ACu), 0, 1);
}

/* Sets cosine and sine of an angle from those of its distance to a quarter turn, at most 45
   degrees. */
static void attn__cos_sin(const attn__fixed *c, attn__fixed angle, float *cosine, float *sine)
{
    /* Adding an eighth of a turn before truncation rounds to the nearest quarter. */
    const int quarter = (int)((angle + ((attn__fixed)1 << 61)) >> 62);
    const attn__fixed off = angle - ((attn__fixed)quarter << 62);
    const int below = (int)(off >> 63);
    /* Turns to radians; the constant is 2^62 pi. */
    const attn__fixed x = attn__fixed_mul((below ? 0 - off : off) << 2, 0xC90FDAA22168C235u) << 1;
    const attn__fixed z = attn__fixed_mul(x, x), x_cos = attn__series(c, z, 0, 2);
    const attn__fixed x_sin = attn__fixed_mul(x, attn__series(c, z, 1, 2));
    /* A quarter turn maps (cos, sin) to (-sin, cos). */
    const int odd = quarter & 1, left = quarter == 1 || quarter == 2, lower = quarter > 1;
    *cosine = attn__fixed_float(odd ? x_sin : x_cos, left ^ (below & odd));
    *sine = attn__fixed_float(odd ? x_cos : x_sin, lower ^ (below & !odd));
}

/* Converts a frequency in float, 24 bits and an exponent, to turns per position. */
static attn__fixed attn__turns_float(float f)
{
    /* A denormal (e = 0) has the exponent of e = 1 and no implicit leading 1. */
    const unsigned u = attn__bits(f), e = u >> 23 & 255u;
    const unsigned digits = (u & 0x7FFFFFu) | (e ? 1u << 23 : 0);
    const attn__fixed t = attn__turns((attn__fixed)digits << 40, (int)(e ? e : 1) - 126);
    return u >> 31 ? 0 - t : t;
}

/* Returns the bits of a double, or of its default for +0 and -0. */
static attn__fixed attn__given_bits(double x, attn__fixed none)
{
    attn__fixed bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7FFFFFFFFFFFFFFFu ? bits : none;
}

/* Checks the range of a double by its bits: those of positive doubles have the order of the
   doubles. */
static ATTN__NOINLINE attn_status attn__check_bits(attn__why *why, const char *name,
                                                   attn__fixed bits, attn__fixed least,
                                                   attn__fixed most, const char *range)
{
    if (bits >= least && bits <= most) return ATTN_OK;
    return attn__fail(why, ATTN_E_OPTION, "%s must be %s", name, range);
}

#define ATTN__1    0x3FF0000000000000u    /* as a double: 1; */
#define ATTN__1E9  0x41CDCD6500000000u    /* 1e9; */
#define ATTN__1E_9 0x3E112E0BE826D695u    /* 1e-9 */

static attn_status attn__check_base(attn__why *why, attn__fixed bits)
{
    return attn__check_bits(why, "base", bits, ATTN__1, 0x7E37E43C8800759Cu,    /* 1e300 */
                            "1 .. 1e300, or 0 for 10000");
}

/* Checks that a rotation can pair this number of components. */
static attn_status attn__check_pairs(attn__why *why, const char *name, int dim)
{
    if (dim >= 2 && dim % 2 == 0) return ATTN_OK;
    return attn__fail(why, ATTN_E_SIZE, "%s is %d but a rotation needs pairs", name, dim);
}

static attn_status attn__rope_bytes(attn__why *why, int positions, int rotary_dim, size_t *bytes)
{
    if (!attn__bytes(bytes, positions, rotary_dim, 1, 1, sizeof(float))) return ATTN_OK;
    return attn__fail(why, ATTN_E_OVERFLOW, "positions %d times rotary_dim %d do not fit the "
                      "address space", positions, rotary_dim);
}

/* Checks that the bits of n floats, ignoring those of `sign`, are in a range. Tested as bits,
   because the caller's thread may trap or flush denormals. */
static attn_status attn__check_floats(attn__why *why, const char *name, const float *x, int n,
                                      unsigned sign, unsigned least, unsigned most,
                                      const char *range)
{
    int i;
    for (i = 0; i < n; i++) {
        const unsigned bits = attn__bits(x[i]) & ~sign;
        if (bits >= least && bits <= most) continue;
        attn__format_part(why, "%s[%d] is ", name, i);
        attn__format_float(&why->text, x[i]);
        return attn__fail(why, ATTN_E_OPTION, " but must be %s", range);
    }
    return ATTN_OK;
}

/* Computes log2 of a double of at least 1. The exponent is the whole part. Squaring the mantissa
   doubles its logarithm: if the square reaches 2, the next bit is 1, and the square is halved. */
static void attn__fixed_log2(attn__fixed bits, attn__fixed *whole, attn__fixed *fraction)
{
    attn__fixed x = (bits & 0xFFFFFFFFFFFFFu) << 11 | (attn__fixed)1 << 63;
    int k;
    *whole = (bits >> 52) - 1023;
    *fraction = 0;
    for (k = 0; k < 64; k++) {
        x = attn__fixed_mul(x, x);
        *fraction = *fraction << 1 | x >> 63;
        if (!(x >> 63)) x <<= 1;
    }
}

ATTNDEF attn_status attn_rope_table(float *table, int positions, int rotary_dim, const float *freqs,
                                    double base)
{
    const attn__size size[] = { { "positions", positions, 0 }, { "rotary_dim", rotary_dim, 2 } };
    attn__why why;
    attn__fixed c[ATTN__TERMS], whole = 0, fraction = 0;
    const attn__fixed bits = attn__given_bits(base, 0x40C3880000000000u);  /* 10000 */
    const int n = rotary_dim / 2;
    attn__array array[] = { { "table", table, 0, 1 },
                            { "freqs", freqs, (size_t)n * sizeof *freqs, 0 } };
    int i, pos, down;
    attn__why_open(&why, "attn_rope_table", NULL);
    ATTN__TRY(attn__check_all(&why, size, 2));
    ATTN__TRY(attn__check_pairs(&why, "rotary_dim", rotary_dim));
    ATTN__TRY(attn__rope_bytes(&why, positions, rotary_dim, &array[0].bytes));
    ATTN__TRY(attn__check_arrays(&why, array, 2, 1));
    if (freqs) {
        ATTN__TRY(attn__check_floats(&why, "freqs", freqs, n, 1u << 31, 0, 0x477fffffu,
                                     "finite and below 65536"));
    } else {
        ATTN__TRY(attn__check_base(&why, bits));
        attn__fixed_log2(bits, &whole, &fraction);
    }
    attn__factorials(c);
    for (i = 0; i < n; i++) {
        attn__fixed step;                 /* in turns per position */
        if (freqs) step = attn__turns_float(freqs[i]);
        else {
            step = attn__base_power(c, whole, fraction, i, rotary_dim, &down);
            step = attn__turns(step, 1 - down);
        }
        /* step * pos wraps: whole turns are dropped, and the remaining angle is exact. */
        for (pos = 0; pos < positions; pos++) {
            float *row = table + (ptrdiff_t)pos * rotary_dim + i;
            attn__cos_sin(c, step * (attn__fixed)pos, row, row + n);
        }
    }
    return ATTN_OK;
}

/* ---- frequencies of checkpoints: doubles, in forms that no compiler can contract ------------- */
/* Arguments with every default resolved; numbers are kept as bits until they are used. */
typedef struct attn__freqs_job {
    const attn_rope_freqs_args *a;
    attn__fixed base, factor, low, high, attention;
    float *freqs, *out;
} attn__freqs_job;

static double attn__double(attn__fixed bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Returns log2(x) for any x > 0. Multiplying by a power of two is exact, so it may be
   contracted. */
static double attn__log2(double x)
{
    attn__fixed whole, fraction;
    const int below = x < 1.0;
    double y = below ? 1.0 / x : x;
    attn__fixed_log2(attn__given_bits(y, 0), &whole, &fraction);
    y = (double)(int)whole + attn__double_of((long long)(fraction >> 1)) * 1.0842021724855044e-19;
    return below ? 0.0 - y : y;
}

#define ATTN__TWO_PI 6.283185307179586

/* Returns the pair that makes this many turns over the original positions, rounded down or up. */
static double attn__yarn_pair(const attn__freqs_job *job, double turns, int up)
{
    const double all = job->a->rotary_dim * attn__log2(job->a->original / (turns * ATTN__TWO_PI));
    double pair = all / (2.0 * attn__log2(attn__double(job->base))), cut;
    /* clamped to fit an int; pairs that far away are all alike */
    pair = pair > 1073741824.0 ? 1073741824.0 : pair < -1073741824.0 ? -1073741824.0 : pair;
    if (job->a->untruncated) return pair;
    cut = (int)pair;                      /* towards 0 */
    return up ? (cut < pair ? cut + 1.0 : cut) : (cut > pair ? cut - 1.0 : cut);
}

/* Sets the ends of the ramp: pairs up to *first keep their frequency, pairs from *last on are
   divided by the whole factor. */
static void attn__yarn_range(const attn__freqs_job *job, double *first, double *last)
{
    const double most = job->a->rotary_dim - 1;
    *first = attn__yarn_pair(job, attn__double(job->high), 0);
    *last = attn__yarn_pair(job, attn__double(job->low), 1);
    if (*first < 0.0) *first = 0.0;
    if (*last > most) *last = most;
    if (*first == *last) *last += 0.001;
}

static double attn__yarn_scale(double factor, double mscale)
{
    const double grown = mscale * (attn__log2(factor) * 0.6931471805599453);    /* ln 2 */
    return 1.0 + grown / 10.0;
}

/* Returns the factor on cosines and sines. */
static double attn__rope_attention(const attn__freqs_job *job)
{
    const attn_rope_freqs_args *a = job->a;
    const double factor = attn__double(job->factor);
    double ratio;
    if (a->kind != ATTN_ROPE_YARN && a->kind != ATTN_ROPE_LONGROPE) return 1.0;
    if (job->attention) return attn__double(job->attention);
    if (a->kind == ATTN_ROPE_YARN && attn__given_bits(a->mscale, 0) &&
        attn__given_bits(a->mscale_all_dim, 0))
        return attn__yarn_scale(factor, a->mscale) / attn__yarn_scale(factor, a->mscale_all_dim);
    if (a->kind == ATTN_ROPE_YARN) return attn__yarn_scale(factor, 1.0);
    ratio = attn__log2(factor) / attn__log2(a->original);
    return attn__sqrt(1.0 + ratio);
}

/* Task: computes all frequencies, in the default floating-point environment. */
static void attn__freqs_task(void *arg, int unused)
{
    const attn__freqs_job *job = (const attn__freqs_job *)arg;
    const attn_rope_freqs_args *a = job->a;
    const double factor = attn__double(job->factor), low = attn__double(job->low);
    const double wide = attn__double(job->high) - low;
    attn__fixed c[ATTN__TERMS], whole, fraction;
    double first = 0.0, last = 1.0, keep;
    int i, down;
    (void)unused;
    attn__factorials(c);
    attn__fixed_log2(job->base, &whole, &fraction);
    if (a->kind == ATTN_ROPE_YARN) attn__yarn_range(job, &first, &last);
    for (i = 0; i < a->rotary_dim / 2; i++) {
        const attn__fixed power = attn__base_power(c, whole, fraction, i, a->rotary_dim, &down);
        double f = attn__double_of((long long)(power >> 10)) * 1.1102230246251565e-16;
        while (down-- > 0) f *= 0.5;
        keep = a->kind == ATTN_ROPE_YARN ? 1.0 - (i - first) / (last - first)
                                         : (a->original * f / ATTN__TWO_PI - low) / wide;
        keep = keep < 0.0 ? 0.0 : keep > 1.0 ? 1.0 : keep;
        switch (a->kind) {
        case ATTN_ROPE_DEFAULT:      break;
        case ATTN_ROPE_LLAMA3:
        case ATTN_ROPE_YARN:         f *= keep + (1.0 - keep) / factor; break;
        case ATTN_ROPE_LONGROPE:     f /= (double)a->factors[i]; break;
        case ATTN_ROPE_PROPORTIONAL: if (a->rotated && i >= a->rotated / 2) f = 0.0;
                                     /* fall through */
        default:                     f /= factor; break;
        }
        job->freqs[i] = (float)f;
    }
    if (job->out) *job->out = (float)attn__rope_attention(job);
}

/* Checks the numbers that a kind uses, and sets their defaults. */
static attn_status attn__freqs_numbers(attn__freqs_job *job, attn__why *why)
{
    const attn_rope_freqs_args *a = job->a;
    const int yarn = a->kind == ATTN_ROPE_YARN, ramp = yarn || a->kind == ATTN_ROPE_LLAMA3;
    const int tuned = yarn || a->kind == ATTN_ROPE_LONGROPE;
    job->base = attn__given_bits(a->base, 0x40C3880000000000u);              /* 10000 */
    job->factor = attn__given_bits(a->kind == ATTN_ROPE_DEFAULT ? 0.0 : a->factor, ATTN__1);
    job->low = attn__given_bits(ramp ? a->low : 0.0, ATTN__1);
    job->high = attn__given_bits(ramp ? a->high : 0.0,
                                 yarn ? 0x4040000000000000u : 0x4010000000000000u);     /* 32, 4 */
    job->attention = attn__given_bits(tuned ? a->attention_factor : 0.0, 0);
    ATTN__TRY(attn__check_base(why, job->base));
    ATTN__TRY(attn__check_bits(why, "factor", job->factor, ATTN__1, ATTN__1E9,
                               "1 .. 1e9, or 0 for 1"));
    ATTN__TRY(attn__check_bits(why, "low", job->low, ATTN__1E_9, ATTN__1E9, "1e-9 .. 1e9"));
    ATTN__TRY(attn__check_bits(why, "high", job->high, job->low + 1, ATTN__1E9,
                               "above low and at most 1e9"));
    ATTN__TRY(attn__check_bits(why, "attention_factor", job->attention ? job->attention : ATTN__1,
                               ATTN__1E_9, ATTN__1E9, "1e-9 .. 1e9, or 0 for the formula"));
    if (!yarn) return ATTN_OK;
    /* base 1 is out of range: log(1) = 0 would be a divisor */
    ATTN__TRY(attn__check_bits(why, "base", job->base, ATTN__1 + 1, (attn__fixed)-1,
                               "above 1 for this kind"));
    ATTN__TRY(attn__check_bits(why, "mscale", attn__given_bits(a->mscale, ATTN__1), ATTN__1E_9,
                               ATTN__1E9, "1e-9 .. 1e9, or 0"));
    ATTN__TRY(attn__check_bits(why, "mscale_all_dim", attn__given_bits(a->mscale_all_dim, ATTN__1),
                               ATTN__1E_9, ATTN__1E9, "1e-9 .. 1e9, or 0"));
    return attn__check_option(why, "untruncated", a->untruncated, 1);
}

/* A separate function, so that its stack frame is free when the task begins. */
static ATTN__NOINLINE attn_status attn__freqs_arrays(const attn__freqs_job *job, attn__why *why)
{
    const attn_rope_freqs_args *a = job->a;
    const int longrope = a->kind == ATTN_ROPE_LONGROPE;
    const int pieces = a->kind == ATTN_ROPE_PROPORTIONAL, counts = a->kind == ATTN_ROPE_LLAMA3 ||
                       a->kind == ATTN_ROPE_YARN || longrope;
    const size_t bytes = (size_t)a->rotary_dim / 2 * sizeof(float), read = longrope ? bytes : 0;
    const attn__array array[] = {
        { "freqs", job->freqs, bytes, 1 }, { "attention", job->out, sizeof *job->out, 0 },
        { "factors", a->factors, read, 1 }
    };
    ATTN__TRY(attn__check_pairs(why, "rotary_dim", a->rotary_dim));
    if (pieces && (a->rotated % 2 || a->rotated < 0 || a->rotated > a->rotary_dim))
        return attn__fail(why, ATTN_E_SIZE, "rotated is %d but must be even, and at most %d",
                          a->rotated, a->rotary_dim);
    if (counts) ATTN__TRY(attn__check_size(why, "original", a->original, 2));
    ATTN__TRY(attn__check_arrays(why, array, 3, 2));
    return attn__check_floats(why, "factors", a->factors, longrope ? a->rotary_dim / 2 : 0, 0,
                              0x38000000u, 0x47000000u, "2^-15 .. 2^15");
}

ATTNDEF attn_status attn_rope_freqs(float *freqs, float *attention, const attn_rope_freqs_args *a)
{
    attn__why why;
    attn__freqs_job job = { a, 0, 0, 0, 0, 0, freqs, attention };
    attn__why_open(&why, "attn_rope_freqs", NULL);
    if (!a) return attn__fail(&why, ATTN_E_NULL, "the attn_rope_freqs_args are NULL");
    ATTN__TRY(attn__check_option(&why, "kind", (int)a->kind, ATTN_ROPE_PROPORTIONAL));
    ATTN__TRY(attn__freqs_numbers(&job, &why));
    ATTN__TRY(attn__freqs_arrays(&job, &why));
    attn__run(NULL, 1, 0, attn__freqs_task, &job);
    return ATTN_OK;
}

/* Rotates one head of one row. A compiler that contracts may fuse a product with a sum that
   follows, but not with an fma, so each product here is an addend of an explicit fma. */
static void attn__rotate(float *x, int rotary_dim, const float *table, int interleaved)
{
    const int half = rotary_dim / 2, step = interleaved ? 2 : 1, other = interleaved ? 1 : half;
    int i;
    for (i = 0; i < half; i++, x += step) {
        const float a = x[0], b = x[other], c = table[i], s = table[half + i];
        x[0] = attn__clean(attn__fma(-b, s, a * c));
        x[other] = attn__clean(attn__fma(a, s, b * c));
    }
}

/* Returns the position of row 0 of entry b. */
static long long attn__rope_pos(const attn_rope_args *a, int b)
{
    return (long long)a->pos + (a->pos_each ? a->pos_each[b] : 0);
}

/* Task: rotates the rows of one entry; every default is resolved. Rows before position 0 are
   padding on the left and stay unchanged. */
static void attn__rope_task(void *arg, int b)
{
    const attn_rope_args *a = (const attn_rope_args *)arg;
    const long long first = attn__rope_pos(a, b);
    const int *each = a->rope_pos ? a->rope_pos + (ptrdiff_t)b * a->n : NULL;
    int i, h;
    for (i = 0; i < a->n; i++) {
        const long long pos = each ? each[i] : first + i;
        for (h = 0; pos >= 0 && h < a->heads; h++)
            attn__rotate(a->x + b * a->x_stride[0] + i * a->x_stride[1] + h * a->x_stride[2],
                         a->rotary_dim, a->rope_table + (ptrdiff_t)pos * a->rotary_dim,
                         a->rope_interleaved);
    }
}

/* Checks sizes and options; resolves rotary_dim. */
static attn_status attn__rope_sizes(attn_rope_args *a, attn__why *why)
{
    const attn__size size[] = {
        { "batch", a->batch, 0 }, { "n", a->n, 0 }, { "heads", a->heads, 1 },
        { "head_dim", a->head_dim, 1 }, { "rotary_dim", a->rotary_dim, 0 },
        { "positions", a->positions, 0 }, { "pos", a->pos, 0 }
    };
    /* The argument that the sentence names. */
    const char *name = a->rotary_dim ? "rotary_dim" : "head_dim";
    ATTN__TRY(attn__check_all(why, size, 7));
    ATTN__TRY(attn__check_option(why, "layout", (int)a->layout, ATTN_BHSD));
    ATTN__TRY(attn__check_option(why, "rope_interleaved", a->rope_interleaved, 1));
    if (!a->rotary_dim) a->rotary_dim = a->head_dim;
    ATTN__TRY(attn__check_pairs(why, name, a->rotary_dim));
    if (a->rotary_dim > a->head_dim)
        return attn__fail(why, ATTN_E_SIZE, "rotary_dim is %d but head_dim is %d", a->rotary_dim,
                          a->head_dim);
    return ATTN_OK;
}

/* Checks that a table of `most` rows covers the positions that the caller supplies, of rows that
   exist. */
static attn_status attn__check_rope_pos(attn__why *why, int most, const int *pos,
                                        const attn__rows *x)
{
    int b, i;
    for (b = 0; b < x->entries; b++)
        for (i = x->from ? x->from[b] : 0; i < (x->to ? x->to[b] : x->each); i++) {
            const ptrdiff_t at = (ptrdiff_t)b * x->each + i;
            if (pos[at] < most) continue;
            return attn__fail(why, ATTN_E_SIZE, "positions is %d but rope_pos[%lld] is %d", most,
                              (long long)at, pos[at]);
        }
    return ATTN_OK;
}

/* Checks resolved strides, overlaps, and that the table covers the rows. */
static attn_status attn__rope_places(attn_rope_args *a, attn__why *why)
{
    const attn__rows rows = { a->batch, a->n, NULL, NULL, NULL };
    const char *also = a->pos ? "pos" : a->pos_each ? "pos_each" : NULL;
    const attn__tensor x = { "x", a->x, a->x_stride, a->x_stride, { a->batch, a->n, a->heads },
                             a->head_dim, a->layout == ATTN_BHSD ? 1 : 2, sizeof(float) };
    const attn__array array[] = {         /* only for their alignment: 1 byte of each */
        { "x", a->x, 1, 0 }, { "rope_table", a->rope_table, 1, 0 },
        { "pos_each", a->pos_each, 1, 0 }, { "rope_pos", a->rope_pos, 1, 0 }
    };
    attn__spans spans;
    size_t bytes;
    int b;
    spans.n = 0;
    if (a->rope_pos) ATTN__TRY(attn__check_beside(why, "rope_pos", also));
    ATTN__TRY(attn__check_arrays(why, array, 4, 0));
    ATTN__TRY(attn__check_tensor(why, &spans, &x));
    /* x is read and written, and may not overlap anything else. */
    spans.outputs = spans.n;
    ATTN__TRY(attn__rope_bytes(why, a->positions, a->rotary_dim, &bytes));
    /* Without rows no table is needed. */
    if (a->batch == 0 || a->n == 0) return ATTN_OK;
    if (!a->rope_table) return attn__fail(why, ATTN_E_NULL, "rope_table is NULL");
    if (a->rope_pos)
        ATTN__TRY(attn__check_rope_pos(why, a->positions, a->rope_pos, &rows));
    for (b = 0; !a->rope_pos && b < a->batch; b++)
        if (attn__rope_pos(a, b) + a->n > a->positions)
            return attn__fail(why, ATTN_E_SIZE, "positions is %d but the last row of entry %d "
                              "stands at %lld", a->positions, b, attn__rope_pos(a, b) + a->n - 1);
    attn__span_add(&spans, "rope_table", a->rope_table, bytes);
    attn__span_add(&spans, "pos_each", a->pos_each, (size_t)a->batch * sizeof(int));
    attn__span_add(&spans, "rope_pos", a->rope_pos, (size_t)a->batch * (size_t)a->n * sizeof(int));
    return attn__check_overlap(why, &spans);
}

ATTNDEF attn_status attn_rope(const attn_rope_args *a)
{
    attn__why why;
    attn_rope_args shape;
    attn__why_open(&why, "attn_rope", NULL);
    if (!a) return attn__fail(&why, ATTN_E_NULL, "the attn_rope_args are NULL");
    shape = *a;
    ATTN__TRY(attn__rope_sizes(&shape, &why));
    ATTN__TRY(attn__rope_places(&shape, &why));
    /* A task even without threads: it runs in the default floating-point environment. */
    if (a->n > 0) attn__run(NULL, a->batch, 0, attn__rope_task, &shape);
    return ATTN_OK;
}

/* ---- norms and activations ------------------------------------------------------------------- */
/* Rows of a norm, in place or from x to y, with every default resolved. */
typedef struct attn__norm_job {
    const attn_norm_args *a;
    int together;                         /* rows of one task */
} attn__norm_job;

/* Norms `rows` rows from `first` on. Weights and biases of a row are `next` floats after those of
   the row before it. */
static void attn__norm_rows(const attn_norm_args *a, int first, int rows, int next)
{
    const attn__kernels *kernels = attn__table(a->backend);
    attn__norm_row row;
    int i;
    row.n = a->n;
    row.kind = a->kind;
    row.eps = a->eps;
    for (i = first; i < first + rows; i++) {
        row.y = a->y + i * a->y_stride;
        row.x = a->x + i * a->x_stride;
        row.weight = a->weight ? a->weight + (ptrdiff_t)i * next : NULL;
        row.bias = a->bias ? a->bias + (ptrdiff_t)i * next : NULL;
        kernels->norm(&row);
    }
}

static void attn__norm_task(void *arg, int i)
{
    const attn__norm_job *job = (const attn__norm_job *)arg;
    const int first = i * job->together;
    attn__norm_rows(job->a, first, attn__min(job->a->rows - first, job->together), 0);
}

/* Checks options and sizes; resolves strides and eps. */
static attn_status attn__norm_options(attn_norm_args *a, attn__why *why)
{
    ATTN__TRY(attn__check_option(why, "kind", (int)a->kind, ATTN_NORM_LAYER));
    ATTN__TRY(attn__check_option(why, "backend", (int)a->backend, ATTN__BACKENDS - 1));
    ATTN__TRY(attn__check_exec(a->exec, why));
    ATTN__TRY(attn__check_size(why, "rows", a->rows, 0));
    ATTN__TRY(attn__check_size(why, "n", a->n, 1));
    ATTN__TRY(attn__check_amount(why, "eps", a->eps));
    ATTN__TRY(attn__check_backend(why, a->backend));
    if (!attn__given(a->eps)) a->eps = 1e-6f;
    if (!a->y_stride) a->y_stride = a->n;
    if (!a->x_stride) a->x_stride = a->n;
    if (a->y_stride < a->n || a->x_stride < a->n)
        return attn__fail(why, ATTN_E_STRIDE, "%s is %lld but rows have %d floats",
                          a->y_stride < a->n ? "y_stride" : "x_stride",
                          (long long)(a->y_stride < a->n ? a->y_stride : a->x_stride), a->n);
    return ATTN_OK;
}

/* Checks the memory of the rows. */
static attn_status attn__norm_places(const attn_norm_args *a, attn__why *why)
{
    const size_t each = a->rows ? (size_t)a->n * sizeof(float) : 0;
    attn__array array[] = { { "y", a->y, 0, 1 }, { "x", a->x, 0, 1 },
                            { "weight", a->weight, each, 0 }, { "bias", a->bias, each, 0 } };
    if (attn__row_span(&array[0].bytes, a->rows, a->n, a->y_stride) ||
        attn__row_span(&array[1].bytes, a->rows, a->n, a->x_stride))
        return attn__fail(why, ATTN_E_OVERFLOW, "%d rows of %d floats do not fit the address space",
                          a->rows, a->n);
    /* In place x has been checked as y. */
    if (a->y == a->x && a->y_stride == a->x_stride) array[1].bytes = 0;
    return attn__check_arrays(why, array, 4, 1);
}

ATTNDEF attn_status attn_norm(const attn_norm_args *given)
{
    enum { FLOATS = 16384 };              /* of a task, some 5 us */
    attn_norm_args a;
    attn__norm_job job;
    attn__why why;
    unsigned long long each;
    int tasks, wake = 0;
    attn__why_open(&why, "attn_norm", given ? given->user : NULL);
    if (!given) return attn__fail(&why, ATTN_E_NULL, "the attn_norm_args are NULL");
    a = *given;
    ATTN__TRY(attn__norm_options(&a, &why));
    ATTN__TRY(attn__norm_places(&a, &why));
    each = 8ull * (unsigned)a.n;          /* operations of a row, roughly */
    job.a = &a;
    job.together = a.rows;
    tasks = a.rows > 0;
    if (a.exec && !attn__is_little((unsigned)a.rows, each)) {
        job.together = attn__max(FLOATS / a.n, 1);
        tasks = a.rows / job.together + (a.rows % job.together > 0);
        wake = !attn__is_short((unsigned)a.rows, each);
    }
    attn__run(a.exec, tasks, wake, attn__norm_task, &job);
    return ATTN_OK;
}

typedef struct attn__activation {
    float *y;
    const float *x, *gate;
    size_t n, together;                   /* values; those of one task */
    attn_activation kind;
} attn__activation;

static void attn__activate_task(void *arg, int i)
{
    const attn__activation *job = (const attn__activation *)arg;
    const size_t first = (size_t)i * job->together, left = job->n - first;
    attn__table(ATTN_AUTO)->activate(job->y + first, job->x + first,
                                     job->gate ? job->gate + first : NULL,
                                     left < job->together ? left : job->together, job->kind);
}

ATTNDEF attn_status attn_activate(float *y, const float *x, const float *gate, size_t n,
                                  attn_activation kind, const attn_exec *exec)
{
    /* about 8192 values per task; more per task if the number of tasks would not fit an int */
    attn__activation job = { y, x, gate, n, 8192 * (n / 8192 / INT_MAX + 1), kind };
    const int too_many = n > ATTN__BYTES_MAX / sizeof(float);
    /* y may be x or gate: their memory is then checked as that of y. */
    const size_t bytes = too_many ? 0 : n * sizeof(float);
    const attn__array array[] = { { "y", y, bytes, 1 }, { "x", x, y == x ? 0 : bytes, 1 },
                                  { "gate", gate, y == gate ? 0 : bytes, 0 } };
    attn__why why;
    attn__why_open(&why, "attn_activate", NULL);
    ATTN__TRY(attn__check_option(&why, "kind", (int)kind, ATTN_SILU));
    ATTN__TRY(attn__check_exec(exec, &why));
    if (too_many)
        return attn__fail(&why, ATTN_E_OVERFLOW, "n is more than the address space");
    ATTN__TRY(attn__check_arrays(&why, array, 3, 1));
    /* some 30 operations a value */
    attn__run(attn__is_little(n, 30) ? NULL : exec,
              (int)(n / job.together) + (n % job.together > 0), !attn__is_short(n, 30),
              attn__activate_task, &job);
    return ATTN_OK;
}

/* ---- multi-head attention with its projections ----------------------------------------------- */
/* Checks the sizes of a layer and resolves every default into *s. */
static attn_status attn__mha_sizes(const attn_mha_args *a, attn_mha_args *s, attn__why *why)
{
    const attn__size size[] = {
        { "d_model", a->d_model, 1 }, { "heads", a->heads, 1 }, { "kv_heads", a->kv_heads, 0 },
        { "head_dim", a->head_dim, 0 }, { "v_head_dim", a->v_head_dim, 0 },
        { "d_key", a->d_key, 0 }, { "d_value", a->d_value, 0 }, { "rotary_dim", a->rotary_dim, 0 },
        { "positions", a->positions, 0 }
    };
    int wide;
    ATTN__TRY(attn__check_all(why, size, 9));
    if (a->positions == 0 && (a->rope_table || a->q_factors))
        return attn__fail(why, ATTN_E_SIZE, "%s is set but positions is 0: it must be the rows of "
                          "the table", a->rope_table ? "rope_table" : "q_factors");
    /* In this order: a default may depend on those before it. */
    *s = *a;
    if (!s->kv_heads) s->kv_heads = s->heads;
    if (s->heads % s->kv_heads)
        return attn__fail(why, ATTN_E_HEADS, "heads is %d but kv_heads is %d; kv_heads must divide "
                          "heads", s->heads, s->kv_heads);
    if (!s->head_dim && s->d_model % s->heads)
        return attn__fail(why, ATTN_E_HEADS, "d_model is %d but heads is %d; heads must divide "
                          "d_model, or give head_dim", s->d_model, s->heads);
    if (!s->head_dim) s->head_dim = s->d_model / s->heads;
    if (!s->v_head_dim) s->v_head_dim = s->head_dim;
    if (!s->d_key) s->d_key = s->d_model;
    if (!s->d_value) s->d_value = s->d_key;
    if (!s->rotary_dim) s->rotary_dim = s->head_dim;
    /* The widest linears, so that those of the K/V heads also fit an int. */
    wide = attn__max(s->head_dim, s->v_head_dim);
    if (s->heads > ATTN__SIZE_MAX / wide)
        return attn__fail(why, ATTN_E_OVERFLOW, "heads %d times %s %d is too large", s->heads,
                          wide == s->head_dim ? "head_dim" : "v_head_dim", wide);
    if (!s->gate_rows) s->gate_rows = s->heads * s->v_head_dim;
    if (s->gate_rows != s->heads && s->gate_rows != s->heads * s->v_head_dim)
        return attn__fail(why, ATTN_E_OPTION, "gate_rows is %d but must be %d or %d", s->gate_rows,
                          s->heads, s->heads * s->v_head_dim);
    return ATTN_OK;
}

/* Returns 1 if queries, keys and values have sources of the same width. */
static int attn__mha_one_source(const attn_mha_args *s)
{
    return s->d_key == s->d_model && s->d_value == s->d_model;
}

/* Returns 1 if the layer rotates queries or scales them by position. */
static int attn__mha_placed(const attn_mha_args *s) { return s->rope_table || s->q_factors; }

/* Checks formats and the options of rotation and norms. */
static attn_status attn__mha_options(const attn_mha_args *s, attn__why *why)
{
    ATTN__TRY(attn__check_storage(why, "storage", s->storage, ATTN__FORMATS));
    ATTN__TRY(attn__check_w_storage(why, s->w_storage));
    ATTN__TRY(attn__check_option(why, "rope_interleaved", s->rope_interleaved, 1));
    ATTN__TRY(attn__check_option(why, "norm_after_rope", s->norm_after_rope, 1));
    ATTN__TRY(attn__check_option(why, "qk_norm", (int)s->qk_norm, ATTN_NORM_LAYER));
    ATTN__TRY(attn__check_option(why, "norm_row", s->norm_row, 2));
    ATTN__TRY(attn__check_option(why, "v_norm", s->v_norm, 1));
    ATTN__TRY(attn__check_option(why, "q_only", s->q_only, 1));
    if (s->rope_table && s->rotary_dim > s->head_dim)
        return attn__fail(why, ATTN_E_SIZE, "rotary_dim is %d but head_dim is %d", s->rotary_dim,
                          s->head_dim);
    if (s->rope_table)
        ATTN__TRY(attn__check_pairs(why, s->rotary_dim == s->head_dim ? "head_dim" : "rotary_dim",
                                    s->rotary_dim));
    /* Only self-attention rotates; there queries, keys and values are all computed from x. */
    if (attn__mha_placed(s) && !attn__mha_one_source(s))
        return attn__fail(why, ATTN_E_CONFLICT, "%s needs one source, but d_model is %d, d_key %d "
                          "and d_value %d", s->rope_table ? "rope_table" : "q_factors", s->d_model,
                          s->d_key, s->d_value);
    return attn__check_amount(why, "norm_eps", s->norm_eps);
}

/* A part of the packed memory of a layer: a linear or a norm. A norm is packed as a linear without
   inputs, whose biases are the weights of the norm. */
typedef struct attn__mha_part {
    const void **w;                       /* weights in attn_mha_args; NULL: a norm */
    const float **b;                      /* biases, or weights of a norm, there */
    int n_in, n_out;                      /* n_out 0: the layer does not have this part */
} attn__mha_part;
enum {
    ATTN__LINEARS = 5,
    ATTN__NORMS = 4,                      /* weights and biases of norms */
    ATTN__PARTS = 9,
    ATTN__OPTIONAL = 4                    /* the first optional part: w_gate and the norms */
};
/* The names of the weights, biases and inputs of each part, in packing order. */
static const struct { const char *w, *b, *n_in; } attn__mha_names[ATTN__PARTS] = {
    { "w_q", "b_q", "d_model" }, { "w_k", "b_k", "d_key" }, { "w_v", "b_v", "d_value" },
    { "w_o", "b_o", "heads * v_head_dim" }, { "w_gate", "b_gate", "d_model" },
    { "", "q_norm", "" }, { "", "k_norm", "" }, { "", "q_norm_b", "" }, { "", "k_norm_b", "" }
};

/* Returns the number of weights of a norm of this many heads. */
static int attn__mha_norm_width(const attn_mha_args *s, int heads)
{
    return s->norm_row ? heads * s->head_dim : s->head_dim;
}

/* Lists the parts of a layer of resolved sizes *s. Every optional part is listed. */
static void attn__mha_parts(attn_mha_args *s, attn__mha_part *part)
{
    const int q = attn__mha_norm_width(s, s->heads), k = attn__mha_norm_width(s, s->kv_heads);
    const attn__mha_part all[ATTN__PARTS] = {
        { &s->w_q, &s->b_q, s->d_model, s->heads * s->head_dim },
        { &s->w_k, &s->b_k, s->d_key, s->q_only ? 0 : s->kv_heads * s->head_dim },
        { &s->w_v, &s->b_v, s->d_value, s->q_only ? 0 : s->kv_heads * s->v_head_dim },
        { &s->w_o, &s->b_o, s->heads * s->v_head_dim, s->d_model },
        { &s->w_gate, &s->b_gate, s->d_model, s->gate_rows },
        { NULL, &s->q_norm, 0, q }, { NULL, &s->k_norm, 0, k },
        { NULL, &s->q_norm_b, 0, q }, { NULL, &s->k_norm_b, 0, k }
    };
    memcpy(part, all, sizeof all);
}

/* Returns the header of packed memory for the layer *s. */
static attn__packed_head attn__mha_head(const attn_mha_args *s, const attn__mha_part *part)
{
    const int size[] = { s->d_model, s->heads, s->kv_heads, s->head_dim, s->v_head_dim, s->d_key,
                         s->d_value, s->q_only };         /* as in attn__mha_sizes_packed */
    attn__packed_head head = { ATTN__PACKED_MAGIC, ATTN__PACKED_LAYOUT, 1, 0, { 0 } };
    int i;
    head.storage = (int)s->storage;
    memcpy(head.size, size, sizeof size);
    for (i = ATTN__OPTIONAL; i < ATTN__PARTS; i++)
        head.size[ATTN__PACKED_PARTS + i] = part[i].n_out;
    return head;
}

/* Reads the header at s->packed, after checking that no weights are given with it. */
static attn_status attn__mha_packed(const attn_mha_args *s, const attn__mha_part *part,
                                    attn__packed_head *head, attn__why *why)
{
    const char *set = s->w_in ? "w_in" : s->b_in ? "b_in" : NULL;
    int i;
    for (i = 0; i < ATTN__PARTS; i++)
        set = part[i].w && *part[i].w ? attn__mha_names[i].w
            : *part[i].b ? attn__mha_names[i].b : set;
    ATTN__TRY(attn__check_beside(why, "packed", set));
    return attn__packed_read(why, s->packed, s->packed_size, 1, head);
}

/* Resolves every default into *s, lists its parts (those that the layer does not have get no
   outputs), and sets *bytes to the memory for copies of the weights. */
static attn_status attn__mha_shape(const attn_mha_args *a, attn_mha_args *s, attn__mha_part *part,
                                   size_t *bytes, attn__why *why)
{
    const attn__mha_part *norm;           /* q_norm, k_norm, q_norm_b, k_norm_b */
    attn__packed_head head, want;
    size_t each;
    int i;
    if (!a) return attn__fail(why, ATTN_E_NULL, "the attn_mha_args are NULL");
    ATTN__TRY(attn__mha_sizes(a, s, why));
    ATTN__TRY(attn__mha_options(s, why));
    attn__mha_parts(s, part);
    if (s->packed) ATTN__TRY(attn__mha_packed(s, part, &head, why));
    *bytes = (size_t)ATTN__PACKED_HEAD + (size_t)ATTN__PACKED_END;
    for (i = 0; i < ATTN__PARTS; i++) {
        const int given = part[i].w ? *part[i].w != NULL : *part[i].b != NULL;
        if (i >= ATTN__OPTIONAL && !(s->packed ? head.size[ATTN__PACKED_PARTS + i] : given))
            part[i].n_out = 0;
        if (part[i].n_out > 0)
            ATTN__TRY(attn__check_blocks(why, attn__mha_names[i].n_in, part[i].n_in,
                                         s->w_storage));
        if (attn__linear_bytes(part[i].n_in, part[i].n_out, s->storage, &each) ||
            (*bytes += each) > ATTN__BYTES_MAX)
            return attn__fail(why, ATTN_E_OVERFLOW, "the weights of d_model %d, heads %d and "
                              "head_dim %d are too large for the address space", s->d_model,
                              s->heads, s->head_dim);
    }
    if (!s->packed) return ATTN_OK;
    want = attn__mha_head(s, part);
    ATTN__TRY(attn__packed_check(why, &head, &want, s->packed_size, *bytes));
    /* Init never packs these: the bias of a norm without the norm, norms of keys without keys. */
    norm = part + ATTN__LINEARS;
    if (norm[2].n_out <= norm[0].n_out && norm[3].n_out <= norm[1].n_out &&
        !(s->q_only && norm[1].n_out))
        return ATTN_OK;
    return attn__fail(why, ATTN_E_BYTES, "packed is damaged: its norms do not fit each other");
}

ATTNDEF size_t attn_mha_size(const attn_mha_args *a)
{
    attn__why why;
    attn_mha_args s;
    attn__mha_part part[ATTN__PARTS];
    size_t bytes;
    attn__why_open(&why, "attn_mha_size", a ? a->user : NULL);
    return attn__mha_shape(a, &s, part, &bytes, &why) == ATTN_OK ? bytes : (size_t)-1;
}

/* Checks that the weights are present, and in only one layout, and that the parts fit each other.
   Splits w_in and b_in into the parts of *s. */
static attn_status attn__mha_weights(attn_mha_args *s, const attn__mha_part *part, attn__why *why)
{
    /* The first separate weights that are set, and the first that are missing. */
    const char *w = s->w_q ? "w_q" : s->w_k ? "w_k" : s->w_v ? "w_v" : NULL;
    const char *b = s->b_q ? "b_q" : s->b_k ? "b_k" : s->b_v ? "b_v" : NULL;
    const char *missing = NULL;
    const attn__mha_part *norm = part + ATTN__LINEARS;    /* q_norm, k_norm, q_norm_b, k_norm_b */
    const char *keys = !s->q_only ? NULL : s->w_in ? "w_in" : s->w_k ? "w_k" : s->w_v ? "w_v" :
                       s->b_in ? "b_in" : s->b_k ? "b_k" : s->b_v ? "b_v" :
                       norm[1].n_out > 0 ? "k_norm" : s->v_norm ? "v_norm" : NULL;
    const int q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    const attn__array array[] = {         /* only for their alignment: 1 byte of each */
        { "b_in", s->b_in, 1, 0 }, { "rope_table", s->rope_table, 1, 0 },
        { "q_factors", s->q_factors, 1, 0 }
    };
    int i;
    ATTN__TRY(attn__check_beside(why, "q_only", keys));
    for (i = s->packed ? 0 : ATTN__OPTIONAL; i-- > 0; )
        if (part[i].n_out > 0 && !*part[i].w && !(s->w_in && part[i].w != &s->w_o))
            missing = attn__mha_names[i].w;
    if (missing && (w || s->w_in)) return attn__fail(why, ATTN_E_NULL, "%s is NULL", missing);
    if (missing)
        return attn__fail(why, ATTN_E_NULL, "%s is NULL, and so %s packed", missing,
                          s->q_only ? "is" : "are w_in and");
    if (s->b_gate && !s->w_gate)
        return attn__fail(why, ATTN_E_CONFLICT, "b_gate is set, but w_gate is not");
    if (norm[2].n_out > norm[0].n_out)
        return attn__fail(why, ATTN_E_CONFLICT, "q_norm_b is set, but q_norm is not");
    if (norm[3].n_out > norm[1].n_out)
        return attn__fail(why, ATTN_E_CONFLICT, "k_norm_b is set, but k_norm is not");
    ATTN__TRY(attn__check_beside(why, "w_in", s->w_in ? w : NULL));
    ATTN__TRY(attn__check_beside(why, "b_in", s->b_in ? b : NULL));
    if (s->w_in && !attn__mha_one_source(s))
        return attn__fail(why, ATTN_E_CONFLICT, "w_in has rows of d_model %d but d_key is %d and "
                          "d_value is %d", s->d_model, s->d_key, s->d_value);
    ATTN__TRY(attn__check_values(why, "w_in", s->w_in, s->w_storage));
    ATTN__TRY(attn__check_arrays(why, array, 3, 0));
    for (i = 0; i < ATTN__PARTS; i++) {
        if (part[i].w) ATTN__TRY(attn__check_values(why, attn__mha_names[i].w, *part[i].w,
                                                    s->w_storage));
        ATTN__TRY(attn__check_align(why, attn__mha_names[i].b, *part[i].b, ATTN__CELL_ALIGN));
    }
    /* From here on only separate weights and biases exist. */
    if (s->w_in) {
        s->w_q = s->w_in;
        s->w_k = attn__given_at(s->w_q, (ptrdiff_t)q * s->d_model, s->w_storage);
        s->w_v = attn__given_at(s->w_k, (ptrdiff_t)kv * s->d_model, s->w_storage);
    }
    if (s->b_in) {
        s->b_q = s->b_in;
        s->b_k = s->b_q + q;
        s->b_v = s->b_k + kv;
    }
    return ATTN_OK;
}

ATTNDEF attn_status attn_mha_init(attn_mha *m, const attn_mha_args *a)
{
    attn__why why;
    attn_mha_args shape, *s = &shape;
    attn__mha_part part[ATTN__PARTS];
    attn_status status;
    attn__packed_head head;
    attn__packer p;
    size_t bytes = 0;                     /* gcc does not see that the check sets it */
    int i;
    attn__why_open(&why, "attn_mha_init", a ? a->user : NULL);
    if (!m) return attn__fail(&why, ATTN_E_NULL, "the attn_mha is NULL");
    status = attn__mha_shape(a, s, part, &bytes, &why);
    /* a may be &m->shape, so m is zeroed after a has been read; and before anything else can fail,
       so that every call rejects a layer whose init failed. */
    memset(m, 0, sizeof *m);
    ATTN__TRY(status);
    ATTN__TRY(attn__mha_weights(s, part, &why));
    head = attn__mha_head(s, part);
    ATTN__TRY(attn__packed_begin(&why, &p, &head, s->packed, s->mem, s->mem_size, bytes));
    for (i = 0; i < ATTN__PARTS; i++) {
        attn_linear *const linear[] = { &m->q, &m->k, &m->v, &m->o, &m->gate };
        const float **const norm[] = { &m->q_norm, &m->k_norm, &m->q_norm_b, &m->k_norm_b };
        attn_linear made;
        if (part[i].n_out > 0) {
            attn__packed_linear(&p, &made, part[i].n_in, part[i].n_out, s->storage,
                                part[i].w ? *part[i].w : NULL, s->w_storage, *part[i].b);
            if (i < ATTN__LINEARS) *linear[i] = made;
            else *norm[i - ATTN__LINEARS] = made.b;
        }
        /* The caller may free the weights. */
        if (part[i].w) *part[i].w = NULL;
        *part[i].b = NULL;
    }
    s->w_in = s->packed = NULL;
    s->packed_size = 0;
    s->b_in = NULL;
    if (!attn__given(s->norm_eps)) s->norm_eps = 1e-6f;
    m->shape = *s;
    m->own = p.own;
    return ATTN_OK;
}

ATTNDEF void attn_mha_free(attn_mha *m)
{
    if (m) attn__drop(m, sizeof *m, m->shape.user, m->own);
}

/* ---- calls of a layer: check, lay out, project, norm and rotate, append, attend, project ----- */
/* The six calls are one procedure, controlled by four flags. An object that a call does not have (a
   cache, for example) is NULL, or has no rows. */
typedef struct attn__mha_kind {
    const char *function;
    int own;                              /* 1: x is the sequence of keys, or its end */
    int makes;                            /* 1: computes keys and values */
    int cached;                           /* 1: all keys are in a cache, or are appended to it */
    int fills;                            /* 1: only fills the cache, without attention */
} attn__mha_kind;
static const attn__mha_kind attn__mha_kinds[] = {          /* in the order of attn_mha_call */
    { "attn_mha_self", 1, 1, 0, 0 },       { "attn_mha_cross", 0, 1, 0, 0 },
    { "attn_mha_self_step", 1, 1, 1, 0 },  { "attn_mha_cross_fill", 0, 1, 1, 1 },
    { "attn_mha_cross_step", 0, 0, 1, 0 }, { "attn_mha_self_look", 1, 0, 1, 0 }
};

/* Arguments of a call. In self-attention x is also the memory, and n is n_q. */
typedef struct attn__mha_given {
    const attn_mha *m;
    attn_mha_call call;
    int batch, n_q, n_k;
    float *out;
    const float *x, *memory;
    attn_kv *to;                          /* the cache that is written */
    const attn_kv *cache;                 /* the cache that is read */
    const int *lengths;                   /* of the memory of a fill */
    const attn_mha_opts *o;
} attn__mha_given;

enum { ATTN__MHA_PARTS = 8 };

/* A running call. */
typedef struct attn__mha_run {
    const attn__mha_given *given;
    const attn__mha_kind *kind;
    const attn_mha *m;
    attn_args in;                         /* the attention between the projections; work and outputs
                                             are the caller's until all is checked */
    attn__call attn;                      /* the same, made */
    attn__rows queries, keys;             /* rows of x and of the memory that are projected */
    const float *memory_v;                /* of the options */
    const int *rope_pos;
    int weights_mean;
    float *mean;                          /* the caller's weights if they are the mean over heads */
    const float *v_from;                  /* source of the values */
    attn__kv_rows put;                    /* rows to append */
    size_t bytes[ATTN__MHA_PARTS];        /* of the parts of the workspace, in this order: */
    float *q, *k, *v;                     /* results of the projections */
    float *gates;                         /* w_gate x */
    float *heads, *weights;               /* output of attention before w_o, weights before the mean
                                             over heads */
    float *ints, *kept;                   /* keys.from and keys.to; a copy of this run */
    char *inner;                          /* the workspace of the attention inside */
    size_t inner_bytes;
    void *own;                            /* the workspace, if it was allocated */
} attn__mha_run;

/* Rejects settings of opts->attn that a layer makes itself, or that this kind of call does not
   support: ignoring them would give wrong results. `set` is the name of the first such setting. */
static attn_status attn__mha_conflicts(const attn__mha_run *r, attn__why *why)
{
    const attn_args *a = &r->in;
    const char *set = NULL;
    int i;
    for (i = 0; i < 3; i++)
        set = a->q_stride[i] ? "q_stride" : a->k_stride[i] ? "k_stride" :
              a->v_stride[i] ? "v_stride" : a->out_stride[i] ? "out_stride" : set;
    set = a->out ? "out" : a->q ? "q" : a->k ? "k" : a->v ? "v" : a->batch ? "batch" :
          a->n_q ? "n_q" : a->n_k ? "n_k" : a->heads ? "heads" : a->kv_heads ? "kv_heads" :
          a->head_dim ? "head_dim" : a->v_head_dim ? "v_head_dim" : a->layout ? "layout" :
          a->carry_in ? "carry_in" : a->carry_out ? "carry_out" : a->parts ? "parts" : set;
    if (set)
        return attn__fail(why, ATTN_E_CONFLICT, "attn.%s is set, but a layer sets it itself", set);
    /* The cache is a separate argument. Naming the same one here is harmless. */
    if (a->kv && a->kv != r->given->cache)
        return attn__fail(why, ATTN_E_CONFLICT, "attn.kv is not the cache of this call");
    if (!r->kind->own && attn__mha_placed(&r->m->shape) && (r->kind->makes || !r->rope_pos))
        return attn__fail(why, ATTN_E_CONFLICT, "the layer has %s: it is for self-attention",
                          r->m->shape.rope_table ? "a rope_table" : "q_factors");
    if (r->m->shape.q_only && r->kind->makes)
        return attn__fail(why, ATTN_E_CONFLICT, "the layer has q_only: it makes no keys");
    /* The remaining checks are for self-attention, and then for its steps. */
    if (!r->kind->own) return ATTN_OK;
    set = a->k_map ? "attn.k_map" : a->k_batch ? "attn.k_batch" : a->k_cum ? "attn.k_cum" :
          r->memory_v ? "memory_v" : NULL;
    if (set)
        return attn__fail(why, ATTN_E_CONFLICT, "%s is set, but the keys are those of x", set);
    if (!r->kind->cached) return ATTN_OK;
    if (a->k_lengths || a->k_starts)
        return attn__fail(why, ATTN_E_CONFLICT, "attn.%s is set, but a step attends to all that is "
                          "there", a->k_lengths ? "k_lengths" : "k_starts");
    if (a->causal == ATTN_CAUSAL_TOP_LEFT)
        return attn__fail(why, ATTN_E_CONFLICT, "attn.causal is top-left, but a step is "
                          "bottom-right");
    return ATTN_OK;
}

/* Checks the offsets of ragged entries, which begin at row 0: projections treat all rows up to the
   last offset as one entry. Resolves *n, the longest entry, if it is 0. */
static attn_status attn__mha_cum(attn__why *why, const char *name, const int *cum, int batch,
                                 const char *width, int *n)
{
    ATTN__TRY(attn__check_align(why, name, cum, ATTN__CELL_ALIGN));
    if (batch > 0 && cum[0] != 0)
        return attn__fail(why, ATTN_E_LENGTHS, "%s[0] is %d but must be 0 in a layer", name,
                          cum[0]);
    return attn__check_cum(why, name, cum, batch, width, n);
}

/* Sets the sizes of the call, of the attention inside, and of the projections. A fill makes only
   keys and values: it is a call without queries. */
static attn_status attn__mha_rows(attn__mha_run *r, int n_q, int n_k, attn__why *why)
{
    const attn_mha_args *s = &r->m->shape;
    attn_args *a = &r->in;
    attn__rows *q = &r->queries, *k = &r->keys;
    a->n_q = q->each = r->attn.n_q = r->kind->fills ? 0 : n_q;
    a->n_k = k->each = !r->kind->makes ? 0 : r->kind->own ? n_q : n_k;
    a->batch = q->entries = k->entries = r->given->batch;
    if (a->k_batch && r->kind->makes) k->entries = a->k_batch;
    /* Without padding a projection treats the rows of all entries as one entry, so their number
       must fit an int. So must the number of tasks of attn__place_task, one per query and one per
       key. */
    if (q->entries > 0 && q->each > ATTN__SIZE_MAX / 3 / q->entries)
        return attn__fail(why, ATTN_E_OVERFLOW, "batch %d times n_q %d is too large", q->entries,
                          q->each);
    if (k->entries > 0 && k->each > ATTN__SIZE_MAX / 3 / k->entries)
        return attn__fail(why, ATTN_E_OVERFLOW, "batch or k_batch %d times n_k %d is too large",
                          k->entries, k->each);
    /* New rows of a self step are both queries and keys, so both have the same lengths. */
    q->to = a->q_lengths;
    k->to = r->kind->own && r->kind->cached ? a->q_lengths : r->given->lengths;
    q->cum = a->q_cum;
    k->cum = !r->kind->makes ? NULL : r->kind->own ? a->q_cum : a->k_cum;
    a->heads = s->heads;
    a->kv_heads = s->kv_heads;
    a->head_dim = s->head_dim;
    a->v_head_dim = s->v_head_dim;
    return ATTN_OK;
}

/* Copies options. A fill may be passed those of the steps that follow it: it does not attend, so it
   uses only some of them, and ignores masks and the like. */
static void attn__mha_take(attn__mha_run *r, const attn_mha_opts *o)
{
    r->memory_v = o->memory_v;
    if (!r->kind->fills) {
        r->in = o->attn;
        r->rope_pos = o->rope_pos;
        r->weights_mean = o->weights_mean;
        return;
    }
    r->in.work = o->attn.work;
    r->in.work_size = o->attn.work_size;
    r->in.user = o->attn.user;
    r->in.exec = o->attn.exec;
    r->in.backend = o->attn.backend;
}

/* Begins a call: options and sizes. Reads no tensor. A query (attn_mha_workspace) may come before
   arrays exist: it reads only lists that determine the longest entry. */
static attn_status attn__mha_begin(attn__mha_run *r, const attn__mha_given *given, int query,
                                   attn__why *why)
{
    const attn_mha *m = given->m;
    const attn__mha_kind *kind = &attn__mha_kinds[given->call];
    const char *n = attn__word(why->n, "n_q");
    int n_q = given->n_q, n_k = given->n_k;
    attn_args *a = &r->in;
    memset(r, 0, sizeof *r);
    if (!m || !m->o.w)
        return attn__fail(why, ATTN_E_NULL, "m is not a layer that attn_mha_init has made");
    r->given = given;
    r->m = m;
    r->kind = kind;
    if (given->o) attn__mha_take(r, given->o);
    if (query) a->kv = NULL;              /* a cache in the options is ignored here */
    r->v_from = r->memory_v ? r->memory_v : given->memory;
    ATTN__TRY(attn__check_size(why, "batch", given->batch, 0));
    ATTN__TRY(attn__check_size(why, n, n_q, 0));
    ATTN__TRY(attn__check_size(why, "n_k", n_k, 0));
    ATTN__TRY(attn__mha_conflicts(r, why));
    if (kind->own && kind->makes && !attn__mha_one_source(&m->shape))
        return attn__fail(why, ATTN_E_SIZE, "d_model is %d but d_key is %d and d_value is %d; "
                          "there is one source here", m->shape.d_model, m->shape.d_key,
                          m->shape.d_value);
    /* Members of the attention inside that the kind of call determines. */
    a->kv = given->cache;
    if (kind->own && kind->cached) a->causal = ATTN_CAUSAL_BOTTOM_RIGHT;
    if (kind->own && !kind->cached) a->k_cum = a->q_cum;
    ATTN__TRY(attn__check_options(a, why, ATTN__CALLS));
    if (!query) ATTN__TRY(attn__check_pointers(a, 0 ATTN__ARRAYS(ATTN__ADDRESS), why));
    ATTN__TRY(attn__check_planes(a, m->shape.heads, why, !query));
    ATTN__TRY(attn__check_option(why, "weights_mean", r->weights_mean, 1));
    if (r->weights_mean) r->mean = a->weights;
    if (a->q_cum && (!query || n_q == 0))
        ATTN__TRY(attn__mha_cum(why, "attn.q_cum", a->q_cum, given->batch, n, &n_q));
    if (a->k_cum && !kind->own && (!query || n_k == 0))
        ATTN__TRY(attn__mha_cum(why, "attn.k_cum", a->k_cum, given->batch, "n_k", &n_k));
    return attn__mha_rows(r, n_q, n_k, why);
}

/* Sets the bytes of each part of the workspace, and *total. Parts that this call does not need have
   no rows. Returns 1 if they overflow. */
static int attn__mha_measure(attn__mha_run *r, size_t *total)
{
    const attn_mha *m = r->m;
    /* A mean over the heads is computed from the weights of each head, which need room. */
    const int planes = r->mean ? attn__planes(&r->in, m->shape.heads) : 0;
    const struct { int a, b, c, d; } part[ATTN__MHA_PARTS] = {
        { r->in.batch, r->in.n_q, m->q.n_out, 1 },
        { r->keys.entries, r->keys.each, m->k.n_out, 1 },
        { r->keys.entries, r->keys.each, m->v.n_out, 1 },
        { r->in.batch, r->in.n_q, m->gate.n_out, 1 },
        { r->in.batch, r->in.n_q, m->o.n_in, 1 },
        { r->in.batch, planes, r->in.n_q, r->in.n_k },
        { r->keys.entries, 2, 1, 1 },
        { (int)sizeof *r / 4 + 1, 1, 1, 1 }
    };
    int i;
    for (*total = 0, i = 0; i < ATTN__MHA_PARTS; i++) {
        size_t *bytes = &r->bytes[i];
        if (attn__bytes(bytes, part[i].a, part[i].b, part[i].c, part[i].d, sizeof(float)))
            return 1;
        *bytes = attn__up(*bytes, 64) + ATTN__FENCE * sizeof(float);
        *total += *bytes;
        if (*total > ATTN__BYTES_MAX) return 1;
    }
    return 0;
}

/* Lays out the measured workspace from `at` on. Each part begins a cache line, because threads
   write to different parts at once. */
static void attn__mha_lay_out(attn__mha_run *r, char *at)
{
    float **const part[ATTN__MHA_PARTS] = { &r->q, &r->k, &r->v, &r->gates, &r->heads, &r->weights,
                                            &r->ints, &r->kept };
    int i;
    for (i = 0; i < ATTN__MHA_PARTS; i++) {
        *part[i] = (float *)(void *)at;
        at += r->bytes[i];
        ATTN__GUARD(at - ATTN__FENCE * sizeof(float), ATTN__FENCE, 1);
    }
    r->inner = at;
}

/* Releases the workspace, if it was allocated. */
static void attn__mha_leave(attn__mha_run *r)
{
    void *own = r->own, *user = r->in.user;
    if (r->q) ATTN__GUARD(r->q, (float *)(void *)r->inner - r->q, 0);
    if (own) ATTN_FREE(user, own);
}

/* Computes the size of the workspace. */
static attn_status attn__mha_plan(attn__mha_run *r, size_t *need, attn__why *why)
{
    size_t total, inner = 0;
    int too_large = attn__mha_measure(r, &total);
    /* Last, the workspace of attn_sdpa for the attention inside. */
    if (!too_large && !r->kind->fills) {
        ATTN__TRY(attn__call_make(&r->attn, &r->in, why, ATTN__PLANS));
        inner = r->attn.bytes;
        too_large = inner == (size_t)-1;
    }
    r->inner_bytes = inner;
    /* Each of the two sizes fits an object, so adding 63 cannot wrap. */
    if (too_large || total + 63 > ATTN__BYTES_MAX - inner)
        return attn__fail(why, ATTN_E_OVERFLOW, "the workspace of batch %d, n_q %d and n_k %d is "
                          "larger than any memory", r->in.batch, r->in.n_q, r->in.n_k);
    *need = total + 63 + inner;
    return ATTN_OK;
}

/* Steps read a cache: sets n_k of the attention to the longest entry that is read. Self steps also
   append to it: checks room in the cache, and in the table of rotations. */
static attn_status attn__mha_step(attn__mha_run *r, attn__why *why)
{
    const attn_kv *cache = r->in.kv;
    attn_kv *to = r->given->to;
    const int positions = r->m->shape.positions;
    const int placed = attn__mha_placed(&r->m->shape) && !r->rope_pos;
    int b, longest = 0;
    if (r->kind->own && cache->shape.batch != r->in.batch)
        return attn__fail(why, ATTN_E_SIZE, "batch is %d but the cache has %d entries", r->in.batch,
                          cache->shape.batch);
    if (to) {
        /* k and v are set after the projections; their numbers of rows are known here. */
        r->put = attn__kv_rows_of(to, NULL, NULL, r->in.n_q, r->in.q_lengths, r->in.q_cum, 0);
        ATTN__TRY(attn__kv_room(why, &r->put, "q_lengths"));
    }
    for (b = 0; b < r->in.batch; b++) {
        const int entry = r->in.k_map ? r->in.k_map[b] : b;
        const int rows = attn__count(r->in.q_cum, r->in.q_lengths, r->in.n_q, b);
        int keys;
        if (entry < 0 || entry >= cache->shape.batch)
            return attn__fail(why, r->in.k_map ? ATTN_E_MAP : ATTN_E_SIZE, "entry %d reads entry "
                              "%d of a cache that has %d", b, entry, cache->shape.batch);
        /* Number of keys after the append. */
        keys = cache->lengths[entry] + (to ? rows : 0);
        if (r->in.k_lengths && r->in.k_lengths[b] < keys) keys = r->in.k_lengths[b];
        if (r->kind->own && keys < rows)
            return attn__fail(why, ATTN_E_LENGTHS, "%d rows look at entry %d, which has %d keys",
                              rows, b, keys);
        if (placed && keys > positions)
            return attn__fail(why, ATTN_E_SIZE, "positions is %d but entry %d grows to %d keys",
                              positions, b, keys);
        if (keys > longest) longest = keys;
    }
    r->in.n_k = longest;
    return ATTN_OK;
}

/* Checks that no output overlaps an input. Outputs are added up to all.outputs. */
static attn_status attn__mha_overlap(attn__mha_run *r, attn__why *why)
{
    const attn__mha_given *given = r->given;
    const attn_args *a = &r->in;
    const attn_mha *m = r->m;
    const attn_mha_args *s = &m->shape;
    const attn_linear *const linear[] = { &m->q, &m->k, &m->v, &m->o, &m->gate };
    const float *const norm[] = { m->q_norm, m->k_norm, m->q_norm_b, m->k_norm_b };
    const attn__rows *q = &r->queries, *k = &r->keys;
    const size_t rows = (size_t)a->batch * (size_t)a->n_q * sizeof(float);
    const int heads = r->mean ? 1 : attn__planes(a, s->heads);
    attn__spans all;
    attn__tensor masks[ATTN__ALL_MASKS];
    size_t x_bytes, k_bytes, v_bytes;
    int i;
    all.n = 0;
    if (attn__bytes(&x_bytes, q->entries, q->each, s->d_model, 1, sizeof(float)) ||
        attn__bytes(&k_bytes, k->entries, k->each, s->d_key, 1, sizeof(float)) ||
        attn__bytes(&v_bytes, k->entries, k->each, s->d_value, 1, sizeof(float)))
        return attn__fail(why, ATTN_E_OVERFLOW, "batch %d, n_q %d and n_k %d do not fit the "
                          "address space", a->batch, a->n_q, a->n_k);
    attn__span_add(&all, "out", given->out, x_bytes);
    /* attn__mha_plan has checked that weights and lse fit. */
    attn__span_add(&all, "weights", a->weights, rows * (size_t)heads * (size_t)a->n_k);
    attn__span_add(&all, "lse", a->lse, rows * (size_t)s->heads);
    attn__span_add(&all, "masked_rows", a->masked_rows, sizeof *a->masked_rows);
    attn__span_add(&all, "work", a->work, a->work_size);
    if (given->to) attn__span_add(&all, "the memory of the cache", given->to->memory,
                                  given->to->bytes);
    all.outputs = all.n;
    attn__span_add(&all, "x", given->x, x_bytes);
    /* memory may be x with more rows, so it is added separately. */
    if (!r->kind->own) attn__span_add(&all, "memory", given->memory, k_bytes);
    if (!r->kind->own) attn__span_add(&all, "memory_v", r->v_from, v_bytes);
    attn__span_add(&all, "source_lengths", given->lengths, (size_t)a->batch * sizeof(int));
    if (!given->to && a->kv) attn__span_add(&all, "the memory of the cache", a->kv->memory,
                                            a->kv->bytes);
    r->attn.n_k = a->n_k;                /* without keys the plan has taken the
                                             capacity */
    if (0 ATTN__MASKS(ATTN__IS_SET))
        ATTN__TRY(attn__check_masks(a, &r->attn, why, &all, masks));
    attn__add_arrays(a, &r->attn, why, &all, ATTN__APPENDS);         /* all except the cache */
    for (i = 0; i < ATTN__LINEARS; i++) {
        attn__span_add(&all, attn__mha_names[i].w, linear[i]->w,
                       attn__linear_weights_bytes(linear[i]));
        attn__span_add(&all, attn__mha_names[i].b, linear[i]->b,
                       attn__linear_padded(linear[i]) * sizeof(float));
    }
    for (i = 0; i < ATTN__NORMS; i++)
        attn__span_add(&all, attn__mha_names[ATTN__LINEARS + i].b, norm[i],
                       (size_t)attn__mha_norm_width(s, i % 2 ? s->kv_heads : s->heads)
                       * sizeof(float));
    attn__span_add(&all, "q_factors", s->q_factors, (size_t)s->positions * sizeof(float));
    attn__span_add(&all, "rope_pos", r->rope_pos,
                   (size_t)q->entries * (size_t)q->each * sizeof(int));
    attn__span_add(&all, "rope_table", s->rope_table,
                   (size_t)s->positions * (size_t)s->rotary_dim * sizeof(float));
    return attn__check_overlap(why, &all);
}

/* Sets the rows of the memory that are used as keys, from the first to the last of each entry. The
   others are not projected: they may be uninitialised. With a k_map an entry of the memory has the
   rows from the first key that any of its readers sees to the last. */
static void attn__mha_keys(attn__mha_run *r)
{
    const attn_args *a = &r->in;
    attn__rows *k = &r->keys;
    int *from = (int *)(void *)r->ints, *to = from + k->entries, b;
    if (r->kind->cached || a->k_cum || k->each == 0) return;
    if (!a->k_lengths && !a->k_starts && !a->k_map && k->entries == r->in.batch) return;
    /* An entry has no keys until a reader is found. */
    memset(from, 0, 2 * (size_t)k->entries * sizeof *from);
    for (b = 0; b < r->in.batch; b++) {
        attn__entry e;
        attn__entry_keys(&r->attn, b, &e);
        if (e.keys == 0) continue;
        if (e.start < from[e.kv] || to[e.kv] == 0) from[e.kv] = e.start;
        if (e.start + e.keys > to[e.kv]) to[e.kv] = e.start + e.keys;
    }
    k->from = from;
    k->to = to;
}

/* Returns the position of row 0 of entry b in self-attention. A step continues after the keys in
   the cache, and rows of self_look are the last ones in it. Otherwise k_starts[b] rows of padding
   come first and have negative positions, so that the first key has position 0. */
static int attn__mha_pos(const attn__mha_run *r, int b)
{
    if (!r->kind->makes) return r->in.kv->lengths[b] - attn__rows_of(&r->attn, b);
    return r->put.to ? r->put.to->lengths[b] : r->in.k_starts ? -r->in.k_starts[b] : 0;
}

/* Returns 1 if row i of x, or of the memory, exists. Padding stays unchanged: the table of
   rotations may end before it. Sets *pos to the position of the row, if it matters. */
static int attn__row_exists(const attn__mha_run *r, const attn__rows *x, int i, int *pos)
{
    int b = i / x->each, row = i % x->each;
    if ((x->from && row < x->from[b]) || (x->to && row >= x->to[b])) return 0;
    while (x->cum && i >= x->cum[b + 1]) b++;
    if (x->cum) row = i - x->cum[b];
    if (!attn__mha_placed(&r->m->shape)) *pos = 0;
    else *pos = r->rope_pos ? r->rope_pos[i] : attn__mha_pos(r, b) + row;
    return 1;
}

/* Norm of the heads of a row, head_dim components each: each separately, or all as one. norm NULL:
   RMS without weights. */
static void attn__norm_heads(const attn__mha_run *r, float *x, int heads, int head_dim,
                             const float *norm, const float *bias)
{
    const attn_mha_args *s = &r->m->shape;
    attn_norm_args a;
    memset(&a, 0, sizeof a);
    a.x = a.y = x;
    a.n = norm && s->norm_row == 1 ? heads * head_dim : head_dim;
    a.x_stride = a.y_stride = a.n;
    a.weight = norm;
    a.bias = bias;
    a.eps = s->norm_eps;
    a.backend = r->in.backend;
    if (norm) a.kind = s->qk_norm;
    attn__norm_rows(&a, 0, a.n == head_dim ? heads : 1, norm && s->norm_row == 2 ? head_dim : 0);
}

/* Normalises (if there is a norm) and rotates the heads of a query or a key, in the order that the
   layer specifies. Padding, before position 0, is not rotated. */
static void attn__place_row(const attn__mha_run *r, float *x, int heads, const float *norm,
                            const float *bias, int pos)
{
    const attn_mha_args *s = &r->m->shape;
    int h;
    if (norm && !s->norm_after_rope) attn__norm_heads(r, x, heads, s->head_dim, norm, bias);
    for (h = 0; s->rope_table && pos >= 0 && h < heads; h++)
        attn__rotate(x + (ptrdiff_t)h * s->head_dim, s->rotary_dim,
                     s->rope_table + (ptrdiff_t)pos * s->rotary_dim, s->rope_interleaved);
    if (norm && s->norm_after_rope) attn__norm_heads(r, x, heads, s->head_dim, norm, bias);
}

static void attn__place_query(const attn__mha_run *r, ptrdiff_t row, int pos)
{
    const attn_mha_args *s = &r->m->shape;
    const int width = r->m->q.n_out;
    float *x = r->q + row * width;
    int i;
    attn__place_row(r, x, s->heads, r->m->q_norm, r->m->q_norm_b, pos);
    for (i = 0; s->q_factors && pos >= 0 && i < width; i++)
        x[i] = attn__clean(x[i] * s->q_factors[pos]);
}

/* Places a key and its value. */
static void attn__place_key(const attn__mha_run *r, ptrdiff_t row, int pos)
{
    const attn_mha_args *s = &r->m->shape;
    attn__place_row(r, r->k + row * r->m->k.n_out, s->kv_heads, r->m->k_norm, r->m->k_norm_b, pos);
    if (s->v_norm)
        attn__norm_heads(r, r->v + row * r->m->v.n_out, s->kv_heads, s->v_head_dim, NULL, NULL);
}

/* Task: places one query or one key; the keys are numbered after all queries. */
static void attn__place_task(void *arg, int i)
{
    const attn__mha_run *r = (const attn__mha_run *)arg;
    const int key = i - r->queries.entries * r->queries.each;
    int pos;
    if (key < 0 && attn__row_exists(r, &r->queries, i, &pos)) attn__place_query(r, i, pos);
    if (key >= 0 && attn__row_exists(r, &r->keys, key, &pos)) attn__place_key(r, key, pos);
}

/* Returns 1/(1 + exp(-x)), which is exp(x)/(exp(x) + 1), in the form whose exp is at most 1, so it
   cannot overflow. */
static float attn__sigmoid(float x)
{
    float e = attn__exp(x < 0.0f ? x : 0.0f - x), down = 1.0f + e;
    /* One operation per assignment, as in section 3. */
    e = x < 0.0f ? e / down : 1.0f / down;
    return e;
}

/* Task: multiplies the output of attention of one row by the gates of that row. No sum follows, so
   compilers cannot contract the products. */
static void attn__gate_task(void *arg, int row)
{
    const attn__mha_run *r = (const attn__mha_run *)arg;
    const int n = r->m->gate.n_out, width = r->m->o.n_in;
    const float *gate = r->gates + (ptrdiff_t)row * n;
    float *x = r->heads + (ptrdiff_t)row * width;
    int pos, h, i;
    if (!attn__row_exists(r, &r->queries, row, &pos)) return;
    for (h = 0; h < n; h++) {
        const float by = attn__sigmoid(gate[h]);
        for (i = 0; i < width / n; i++, x++) {
            *x *= by;
            if (*x != *x) *x = attn__nan();
        }
    }
}

/* Task: averages one row of weights over the heads that have them: summed in head order, so that
   threads do not matter, then divided. */
static void attn__mean_task(void *arg, int i)
{
    const attn__mha_run *r = (const attn__mha_run *)arg;
    /* i counts the rows of all entries. The same row of the next head is `head` floats away. */
    const size_t n_k = (size_t)r->in.n_k, head = (size_t)r->in.n_q * n_k;
    const int heads = attn__planes(&r->in, r->m->shape.heads);
    const size_t entry = (size_t)(i / r->in.n_q) * (size_t)heads * head;
    const float *from = r->weights + entry + (size_t)(i % r->in.n_q) * n_k;
    float *to = r->mean + (size_t)i * n_k;
    size_t j;
    int h;
    memcpy(to, from, n_k * sizeof(float));
    for (h = 1; h < heads; h++)
        for (from += head, j = 0; j < n_k; j++) to[j] += from[j];
    for (j = 0; j < n_k; j++) to[j] = attn__clean(to[j] / (float)heads);
}

/* Returns the multiply-adds of a row after the first linears: attention and the last linear. */
static unsigned long long attn__mha_more(const attn__mha_run *r)
{
    const attn_mha_args *s = &r->m->shape;
    const unsigned key = (unsigned)s->heads * ((unsigned)s->head_dim + (unsigned)s->v_head_dim);
    const attn_linear *o = &r->m->o;
    if (r->kind->fills) return 0;
    return (unsigned long long)r->in.n_k * key + (unsigned long long)o->n_in * (unsigned)o->n_out;
}

/* Computes the layer. Everything has been checked and allocated: nothing can fail. */
static attn_status attn__mha_compute(attn__mha_run *r, attn__why *why)
{
    const attn_mha *m = r->m;
    const attn_mha_args *s = &m->shape;
    const attn__mha_given *given = r->given;
    const attn__kernels *kernels = attn__table(r->in.backend);
    const int *lengths = r->queries.to;
    const int queries = r->queries.entries * r->queries.each;
    attn__project in[4] = {
        { { kernels, &m->q, given->x, m->q.n_in, NULL }, r->q, r->queries, 0, 0, 0 },
        { { kernels, &m->k, given->memory, m->k.n_in, NULL }, r->k, r->keys, 0, 0, 0 },
        { { kernels, &m->v, r->v_from, m->v.n_in, NULL }, r->v, r->keys, 0, 0, 0 },
        { { kernels, &m->gate, given->x, m->gate.n_in, NULL }, r->gates, r->queries, 0, 0, 0 }
    };
    attn__project back = { { kernels, &m->o, r->heads, m->o.n_in, NULL }, given->out, r->queries, 0,
                           0, 0 };
    attn_status status;
    int b;
    attn__project_run(r->in.exec, in, m->gate.n_out > 0 ? 4 : 3, attn__mha_more(r));
    /* Keys are normalised and rotated before they are appended: a cache holds them as they are
       read. */
    if (m->q_norm || m->k_norm || s->v_norm || attn__mha_placed(s))
        attn__run(r->in.exec, queries + r->keys.entries * r->keys.each, 0, attn__place_task, r);
    if (given->to) {
        /* A fill drops the contents of the cache, and appends to an empty one. */
        for (b = 0; r->kind->fills && b < r->in.batch; b++) attn__kv_cut(given->to, b, 0);
        r->put.k = r->k;
        r->put.v = r->v;
        attn__kv_write(&r->put, r->in.exec);
    }
    if (r->kind->fills) return ATTN_OK;
    /* The arguments were checked, and their memory is a part of the workspace. */
    status = attn__sdpa_run(&r->attn, NULL, NULL, 0, why);
    ATTN_ASSERT(status == ATTN_OK);
    if (r->mean)
        attn__run(r->in.exec, r->in.batch * r->in.n_q, 0, attn__mean_task, r);
    if (m->gate.n_out > 0) attn__run(r->in.exec, queries, 0, attn__gate_task, r);
    attn__project_run(r->in.exec, &back, 1, 0);
    /* Rows of padding were left out everywhere; they are written as zeros. */
    for (b = 0; lengths && b < r->in.batch; b++)
        memset(given->out + ((ptrdiff_t)b * r->in.n_q + lengths[b]) * s->d_model, 0,
               (size_t)(r->in.n_q - lengths[b]) * (size_t)s->d_model * sizeof(float));
    return status;
}

/* Counts the rows of ragged sources, and checks that no source is NULL. */
static attn_status attn__mha_sources(attn__mha_run *r, attn__why *why)
{
    const attn_mha_args *s = &r->m->shape;
    const attn__mha_given *given = r->given;
    const attn__array array[] = {         /* only for their alignment: 1 byte of each */
        { "out", given->out, 1, 0 }, { "x", given->x, 1, 0 }, { "memory", given->memory, 1, 0 },
        { "memory_v", r->memory_v, 1, 0 }, { "rope_pos", r->rope_pos, 1, 0 }
    };
    attn__rows *q = &r->queries, *k = &r->keys;
    /* Only the attention inside handles ragged entries: for projections they are one entry. */
    if (q->cum) q->each = attn__ragged(q->cum, r->in.batch, 1);
    if (k->cum) k->each = attn__ragged(k->cum, r->in.batch, 1);
    if (q->cum) q->entries = 1;
    if (k->cum) k->entries = 1;
    /* Without queries no key is read, so none is projected. */
    if (!r->kind->fills && (q->entries == 0 || q->each == 0)) k->each = 0;
    ATTN__TRY(attn__check_arrays(why, array, 5, 0));
    /* A source without rows may be NULL. */
    if (q->entries > 0 && q->each > 0 && (!given->out || !given->x))
        return attn__fail(why, ATTN_E_NULL, "%s is NULL", given->out ? "x" : "out");
    if (k->each > 0 && !given->memory) return attn__fail(why, ATTN_E_NULL, "memory is NULL");
    if (k->each > 0 && !r->memory_v && s->d_value != s->d_key)
        return attn__fail(why, ATTN_E_NULL, "memory_v is NULL but d_key is %d and d_value is %d: "
                          "values need a source", s->d_key, s->d_value);
    return ATTN_OK;
}

/* Checks that the projected memory fits into the cache that is filled. */
static attn_status attn__mha_fill(attn__mha_run *r, attn__why *why)
{
    const attn_mha_args *s = &r->m->shape;
    const attn_kv *c = r->given->to;
    const int *lengths = r->given->lengths;
    const attn__pair same[] = {
        { "batch of the cache", c->shape.batch, r->in.batch },
        { "kv_heads of the cache", c->shape.kv_heads, s->kv_heads },
        { "head_dim of the cache", c->shape.head_dim, s->head_dim },
        { "v_head_dim of the cache", c->shape.v_head_dim, s->v_head_dim }
    };
    long long need = 0;
    int b;
    ATTN__TRY(attn__check_same(why, "", " here", same, 4));
    ATTN__TRY(attn__check_align(why, "source_lengths", lengths, ATTN__CELL_ALIGN));
    /* Lengths are validated before their room is checked. */
    for (b = 0; lengths && b < r->in.batch; b++)
        if (lengths[b] < 0 || lengths[b] > r->keys.each)
            return attn__fail(why, ATTN_E_LENGTHS, "n_k is %d but source_lengths[%d] is %d",
                              r->keys.each, b, lengths[b]);
    r->put = attn__kv_rows_of(r->given->to, NULL, NULL, r->keys.each, lengths, NULL, 0);
    for (b = 0; b < r->in.batch; b++) {
        const int keys = attn__kv_count(&r->put, b);
        if (keys > c->shape.capacity)
            return attn__fail(why, ATTN_E_FULL, "entry %d has %d keys but the cache holds %d", b,
                              keys, c->shape.capacity);
        need += (keys + ATTN__CHUNK - 1) / ATTN__CHUNK;
    }
    /* c is emptied first, so all of its pages are free */
    if (need > c->shape.pages)
        return attn__fail(why, ATTN_E_FULL, "the cache needs %lld pages but has %d: %lld are "
                          "missing", need, c->shape.pages, need - c->shape.pages);
    return ATTN_OK;
}

/* Moves the attention inside to the workspace, and checks the lengths of its entries: r->attn has
   the lists of r->in since the plan, which has checked the rest. */
static attn_status attn__mha_inside(attn__mha_run *r, attn__why *why)
{
    const attn_mha_args *s = &r->m->shape;
    r->in.work = r->inner;
    r->in.work_size = r->inner_bytes;
    r->in.out = r->heads;
    r->in.q = r->q;
    if (!r->kind->cached) {
        r->in.k = r->k;
        r->in.v = r->v;
    }
    if (r->mean) r->in.weights = r->weights;
    /* attn__mha_step has checked the entries of a cache that is appended to. */
    if (!r->given->to) ATTN__TRY(attn__check_entries(&r->in, &r->attn, why, ATTN__CALLS));
    attn__call_take(&r->attn, &r->in);
    attn__mha_keys(r);
    /* The lengths are valid here. Positions of rows of x are checked as queries and as keys. */
    if (!r->rope_pos || !attn__mha_placed(s)) return ATTN_OK;
    ATTN__TRY(attn__check_rope_pos(why, s->positions, r->rope_pos, &r->queries));
    if (!r->kind->own || !r->kind->makes || !s->rope_table) return ATTN_OK;
    return attn__check_rope_pos(why, s->positions, r->rope_pos, &r->keys);
}

/* The remaining checks, before anything is written: room in a cache, then memory, sources and
   overlaps, then the lengths of entries. */
static attn_status attn__mha_checked(attn__mha_run *r, attn__why *why)
{
    const int positions = r->m->shape.positions;
    size_t need = 0;                      /* gcc does not see that the plan sets it */
    char *at = NULL;
    if (r->kind->fills) ATTN__TRY(attn__mha_fill(r, why));
    else if (r->kind->cached) ATTN__TRY(attn__mha_step(r, why));
    else if (attn__mha_placed(&r->m->shape) && !r->rope_pos && r->in.n_q > positions)
        return attn__fail(why, ATTN_E_SIZE, "positions is %d but n is %d", positions, r->in.n_q);
    ATTN__TRY(attn__mha_plan(r, &need, why));
    ATTN__TRY(attn__check_memory(why, "work_size", "attn_mha_workspace", r->in.work,
                                 r->in.work_size, need));
    ATTN__TRY(attn__allocate(why, r->in.work, need, "the workspace", &r->own, &at));
    attn__mha_lay_out(r, at);
    ATTN__TRY(attn__mha_sources(r, why));
    ATTN__TRY(attn__mha_overlap(r, why));
    return r->kind->fills ? ATTN_OK : attn__mha_inside(r, why);
}

/* Everything before the computation. A separate function, so that its stack frame is free
   afterwards. */
static ATTN__NOINLINE attn_status attn__mha_prepare(const attn__mha_given *given,
                                                    attn__mha_run **run, attn__why *why)
{
    const attn_kv *c = given->to ? given->to : given->cache;
    attn__mha_run r;
    attn_status status;
    if (attn__mha_kinds[given->call].cached && !attn__kv_live(c))
        return attn__fail(why, ATTN_E_NULL, "c is not a cache that attn_kv_init has made");
    if (c && c->shape.v_in_k)
        return attn__fail(why, ATTN_E_CONFLICT, "c has v_in_k, but a layer makes values of its "
                          "own");
    ATTN__TRY(attn__mha_begin(&r, given, 0, why));
    status = attn__mha_checked(&r, why);
    if (status != ATTN_OK) {
        attn__mha_leave(&r);
        return status;
    }
    /* The checked call moves to the workspace, which frees the stack for the computation. */
    *run = (attn__mha_run *)(void *)r.kept;
    **run = r;
    return ATTN_OK;
}

/* All six calls. */
static attn_status attn__mha_call(const attn__mha_given *given)
{
    const attn__mha_kind *kind = &attn__mha_kinds[given->call];
    attn__why why;
    attn__mha_run *r = NULL;
    attn_status status;
    attn__why_open(&why, kind->function, given->o ? given->o->attn.user : NULL);
    if (kind->own) why.n = "n";
    ATTN__TRY(attn__mha_prepare(given, &r, &why));
    status = attn__mha_compute(r, &why);
    attn__mha_leave(r);
    return status;
}

ATTNDEF attn_status attn_mha_self(const attn_mha *m, float *out, const float *x, int batch, int n,
                                  const attn_mha_opts *o)
{
    const attn__mha_given given = { m, ATTN_MHA_SELF, batch, n, 0, out, x, x, NULL, NULL, NULL, o };
    return attn__mha_call(&given);
}

ATTNDEF attn_status attn_mha_cross(const attn_mha *m, float *out, const float *x, int batch,
                                   int n_q, const float *memory, int n_k, const attn_mha_opts *o)
{
    const attn__mha_given given = { m, ATTN_MHA_CROSS, batch, n_q, n_k, out, x, memory, NULL, NULL,
                                    NULL, o };
    return attn__mha_call(&given);
}

ATTNDEF attn_status attn_mha_self_step(const attn_mha *m, float *out, const float *x, int batch,
                                       int n, attn_kv *c, const attn_mha_opts *o)
{
    const attn__mha_given given = { m, ATTN_MHA_SELF_STEP, batch, n, 0, out, x, x, c, c, NULL, o };
    return attn__mha_call(&given);
}

ATTNDEF attn_status attn_mha_cross_fill(const attn_mha *m, attn_kv *c, const float *memory,
                                        int batch, int n_k, const int *source_lengths,
                                        const attn_mha_opts *o)
{
    const attn__mha_given given = { m, ATTN_MHA_CROSS_FILL, batch, 0, n_k, NULL, NULL, memory, c,
                                    NULL, source_lengths, o };
    return attn__mha_call(&given);
}

ATTNDEF attn_status attn_mha_cross_step(const attn_mha *m, float *out, const float *x, int batch,
                                        int n_q, const attn_kv *c, const attn_mha_opts *o)
{
    const attn__mha_given given = { m, ATTN_MHA_CROSS_STEP, batch, n_q, 0, out, x, NULL, NULL, c,
                                    NULL, o };
    return attn__mha_call(&given);
}

ATTNDEF attn_status attn_mha_self_look(const attn_mha *m, float *out, const float *x, int batch,
                                       int n, const attn_kv *c, const attn_mha_opts *o)
{
    const attn__mha_given given = { m, ATTN_MHA_SELF_LOOK, batch, n, 0, out, x, NULL, NULL, c, NULL,
                                    o };
    return attn__mha_call(&given);
}

ATTNDEF size_t attn_mha_workspace(const attn_mha *m, attn_mha_call call, int batch, int n_q,
                                  int n_k, const attn_mha_opts *o)
{
    const attn__mha_given given = { m, call, batch, n_q, n_k, NULL, NULL, NULL, NULL, NULL, NULL,
                                    o };
    attn__why why;
    attn__mha_run r;
    attn_kv cache;                        /* stands for the cache of a step */
    size_t need = 0, most = 0;
    int lengths = 0, i;
    attn__why_open(&why, "attn_mha_workspace", o ? o->attn.user : NULL);
    if (attn__check_option(&why, "call", (int)call, ATTN_MHA_SELF_LOOK) != ATTN_OK ||
        attn__mha_begin(&r, &given, 1, &why) != ATTN_OK)
        return (size_t)-1;
    /* The workspace of a step depends on the capacity of its cache, n_k here. This cache is not
       read, but must look initialised. */
    if (r.kind->cached && !r.kind->fills) {
        memset(&cache, 0, sizeof cache);
        cache.shape.batch = r.in.k_batch ? r.in.k_batch : batch;
        cache.shape.kv_heads = m->shape.kv_heads;
        cache.shape.head_dim = m->shape.head_dim;
        cache.shape.v_head_dim = m->shape.v_head_dim;
        cache.shape.capacity = n_k;
        cache.lengths = cache.table = &lengths;
        r.in.kv = &cache;
        r.in.n_k = n_k;
    }
    for (i = 0; i < 4; i++) {             /* one of these pairs of formats needs the most room */
        cache.shape.k_storage = i & 1 ? ATTN_Q8 : ATTN_F16;
        cache.shape.v_storage = i & 2 ? ATTN_Q8 : ATTN_F16;
        if (attn__mha_plan(&r, &need, &why) != ATTN_OK) return (size_t)-1;
        if (need > most) most = need;
    }
    return most;
}

#ifndef ATTN_NO_DELTA
/* ---- linear attention ------------------------------------------------------------------------ */
/* A call with every default and stride resolved. A task is a head of an entry, or one slice of it
   if there are few heads. Run i does every runs-th task in slot i. */
typedef struct attn__delta_call {
    attn_delta_args a;
    int columns, groups, runs;            /* columns of a task; tasks of a head */
    float *slots;
} attn__delta_call;

#define ATTN__OPTION(name, last) ATTN__TRY(attn__check_option(why, #name, (int)a->name, last));
#define ATTN__SIZE(name, least) ATTN__TRY(attn__check_size(why, #name, a->name, least));

/* Checks the rows of entries, and sets *n to the rows of the longest and *rows to those of the
   tensors: with q_cum all entries are one long one. */
static attn_status attn__check_rows(attn__why *why, int batch, int *n, const int *lengths,
                                    const int *cum, int *rows)
{
    int b;
    ATTN__TRY(attn__check_align(why, "q_lengths", lengths, ATTN__CELL_ALIGN));
    ATTN__TRY(attn__check_align(why, "q_cum", cum, ATTN__CELL_ALIGN));
    if (cum) {
        ATTN__TRY(attn__check_beside(why, "q_cum", lengths ? "q_lengths" : NULL));
        ATTN__TRY(attn__check_cum(why, "q_cum", cum, batch, "n", n));
    }
    for (b = 0; lengths && b < batch; b++)
        if (lengths[b] < 0 || lengths[b] > *n)
            return attn__fail(why, ATTN_E_LENGTHS, "q_lengths[%d] is %d but n is %d", b, lengths[b],
                              *n);
    *rows = cum ? attn__ragged(cum, batch, 1) : *n;
    return ATTN_OK;
}

static void attn__copy_rows(float *to, ptrdiff_t to_row, const float *from, ptrdiff_t from_row,
                            int rows, int n)
{
    for (; rows > 0; rows--, to += to_row, from += from_row)
        memcpy(to, from, (size_t)n * sizeof *to);
}

/* Copies rows of q or k to `to`, with their norm if there is one: root mean square and sum of
   squares differ by a factor of head_dim. */
static void attn__delta_rows(const attn_delta_args *a, float *to, const float *from, ptrdiff_t row,
                             const float *weight, int rows)
{
    const int n = a->head_dim;
    const attn_norm_args norm = { to, from, rows, n, n, row, ATTN_NORM_RMS, weight, NULL,
                                  a->norm_eps / (float)n, NULL, a->backend, NULL };
    if (a->qk_norm) attn__norm_rows(&norm, 0, rows, 0);
    else attn__copy_rows(to, n, from, row, rows, n);
}

/* Sets e and beta of some rows: the factors of g and the numbers of b. NULL: no decay; ones. */
static void attn__delta_factors(const attn_delta_args *a, const attn__kernels *kernels,
                                const float *g, const float *b, int rows, float *e, float *beta)
{
    const int n = a->head_dim;
    int i;
    for (i = 0; i < rows; i++) {
        beta[i] = b ? b[i * a->beta_stride[1]] : 1.0f;
        if (a->g_per_component)
            kernels->decay(e + (ptrdiff_t)i * n, g + i * a->g_stride[1], n);
        else e[i] = g ? g[i * a->g_stride[1]] : 0.0f;
    }
    if (!a->g_per_component) kernels->decay(e, e, rows);
}

/* Copies q, k and v of each block of rows to the slot, and out from it: the rows of a tensor are
   far apart, so a pass would wait for lines that are not in L1. */
static void attn__delta_task(const attn__delta_call *call, float *slot, long long task)
{
    const attn_delta_args *a = &call->a;
    const attn__kernels *kernels = attn__table(a->backend);
    const long long head = task / call->groups;
    const int b = (int)(head / a->heads), h = (int)(head % a->heads);
    const int n = a->head_dim, kh = h / (a->heads / a->k_heads), row = ATTN__DELTA_COLUMNS;
    const int from = (int)(task % call->groups) * call->columns;
    const int to = attn__min(from + call->columns, a->v_head_dim);
    const int rows = attn__count(a->q_cum, a->q_lengths, a->n, b);
    const ptrdiff_t entry = a->q_cum ? 0 : b, first = a->q_cum ? a->q_cum[b] : 0;
    const ptrdiff_t block = (ptrdiff_t)ATTN__DELTA_ROWS * n;
    const float factor = attn__default_scale(n);
    /* The slice first: slots begin at multiples of 64 bytes if head_dim is a multiple of 4. */
    float *slice = slot, *v = slice + (ptrdiff_t)row * n, *beta = v + row * ATTN__DELTA_ROWS;
    float *q = beta + ATTN__DELTA_ROWS, *k = q + block, *e = k + block, *weight = e + block;
    attn__delta f = { NULL, slice, v, q, k, e, beta, 0, 0, n, 0, a->g_per_component ? n : 1,
                      a->g_per_component, a->rule == ATTN_RULE_ADD, a->scale,
                      { NULL, NULL, NULL },
                      { a->q_stride[1], a->k_stride[1], a->v_stride[1] } };
    int t, x, i;
#define ATTN__AT(x, head, t) \
    (a->x + entry * a->x##_stride[0] + (first + (t)) * a->x##_stride[1] + (head) * a->x##_stride[2])
    for (i = 0; i < n; i++) weight[i] = factor;
    for (t = 0; t < rows; t += ATTN__DELTA_ROWS) {
        f.rows = attn__min(ATTN__DELTA_ROWS, rows - t);
        attn__delta_rows(a, q, ATTN__AT(q, kh, t), a->q_stride[1], weight, f.rows);
        attn__delta_rows(a, k, ATTN__AT(k, kh, t), a->k_stride[1], weight, f.rows);
        attn__delta_factors(a, kernels, a->g ? ATTN__AT(g, h, t) : NULL,
                            a->beta ? ATTN__AT(beta, h, t) : NULL, f.rows, e, beta);
        for (x = from; x < to; x += row) {
            float *state = a->state + (ptrdiff_t)head * n * a->v_head_dim + x;
            const int columns = attn__min(row, to - x), part = columns < row;
            f.columns = columns;
            f.state = part ? slice : state;
            f.state_row = part ? row : a->v_head_dim;
            if (part) {                   /* the kernels compute whole slices */
                memset(slice, 0, ((size_t)n + ATTN__DELTA_ROWS) * ATTN__DELTA_COLUMNS *
                                 sizeof *slice);
                attn__copy_rows(slice, row, state, a->v_head_dim, n, columns);
            }
            attn__copy_rows(v, row, ATTN__AT(v, h, t) + x, a->v_stride[1], f.rows, columns);
            f.ahead[0] = NULL;
            if (rows - t >= 2 * ATTN__DELTA_ROWS) {
                f.ahead[0] = ATTN__AT(q, kh, t + ATTN__DELTA_ROWS) + attn__min(x, n);
                f.ahead[1] = ATTN__AT(k, kh, t + ATTN__DELTA_ROWS) + attn__min(x, n);
                f.ahead[2] = ATTN__AT(v, h, t + ATTN__DELTA_ROWS) + x;
            }
            kernels->delta(&f);
            attn__copy_rows(ATTN__AT(out, h, t) + x, a->out_stride[1], v, row, f.rows, columns);
            if (part) attn__copy_rows(state, a->v_head_dim, slice, row, n, columns);
        }
    }
    for (t = rows; !a->q_cum && t < a->n; t++)
        memset(ATTN__AT(out, h, t) + from, 0, (size_t)(to - from) * sizeof(float));
#undef ATTN__AT
}

static void attn__delta_run(void *arg, int i)
{
    const attn__delta_call *call = (const attn__delta_call *)arg;
    const long long tasks = (long long)call->a.batch * call->a.heads * call->groups;
    float *slot = call->slots + (ptrdiff_t)i * ATTN__DELTA_FLOATS *
                                ((ptrdiff_t)call->a.head_dim + ATTN__DELTA_MORE);
    long long task;
    for (task = i; task < tasks; task += call->runs) attn__delta_task(call, slot, task);
}

/* Copies a call, checks options and sizes, and resolves their defaults. *bytes: the workspace. */
static attn_status attn__delta_sizes(attn_delta_args *a, const attn_delta_args *given,
                                     const char *function, attn__why *why, size_t *bytes)
{
    attn__why_open(why, function, given ? given->user : NULL);
    if (!given) return attn__fail(why, ATTN_E_NULL, "the attn_delta_args are NULL");
    *a = *given;
    ATTN__SIZE(batch, 0) ATTN__SIZE(n, 0) ATTN__SIZE(heads, 1)
    ATTN__SIZE(k_heads, 0) ATTN__SIZE(head_dim, 1) ATTN__SIZE(v_head_dim, 0)
    ATTN__OPTION(rule, ATTN_RULE_ADD) ATTN__OPTION(g_per_component, 1) ATTN__OPTION(qk_norm, 1)
    ATTN__OPTION(backend, ATTN__BACKENDS - 1)
    if (!attn__finite(a->scale))
        return attn__fail_float(why, "scale", a->scale, "finite");
    ATTN__TRY(attn__check_amount(why, "norm_eps", a->norm_eps));
    ATTN__TRY(attn__check_exec(a->exec, why));
    if (!a->k_heads) a->k_heads = a->heads;
    if (!a->v_head_dim) a->v_head_dim = a->head_dim;
    if (a->heads % a->k_heads)
        return attn__fail(why, ATTN_E_HEADS, "k_heads is %d but heads is %d, not a multiple",
                          a->k_heads, a->heads);
    if (!attn__given(a->scale)) a->scale = attn__default_scale(a->head_dim);
    if (!attn__given(a->norm_eps)) a->norm_eps = 1e-6f;
    ATTN__TRY(attn__check_backend(why, a->backend));
    if (attn__bytes(bytes, a->head_dim + ATTN__DELTA_MORE, ATTN__DELTA_FLOATS,
                    a->exec ? a->exec->width : 1, 1, sizeof(float)))
        return attn__fail(why, ATTN_E_OVERFLOW, "the workspace is too large for the address space");
    *bytes += 63;                         /* for the alignment */
    return ATTN_OK;
}

/* Checks pointers, lengths, strides and overlaps, and resolves n and the strides. */
static attn_status attn__delta_places(attn_delta_args *a, attn__why *why)
{
    const int batch = a->q_cum ? 1 : a->batch;
    attn__tensor tensors[6], *t = tensors;        /* spans refers to them */
    attn__spans spans;
    size_t states;
    int rows;
    if (a->g_per_component && !a->g)
        return attn__fail(why, ATTN_E_CONFLICT, "g_per_component is set but g is NULL");
    ATTN__TRY(attn__check_rows(why, a->batch, &a->n, a->q_lengths, a->q_cum, &rows));
    if (attn__bytes(&states, a->batch, a->heads, a->head_dim, a->v_head_dim, sizeof(float)))
        return attn__fail(why, ATTN_E_OVERFLOW, "%d states of %d heads do not fit the address "
                          "space", a->batch, a->heads);
    if (rows == 0) {
        a->n = 0;
        states = 0;
    }
    spans.n = 0;
#define ATTN__PLACE(x, heads, dim) { \
        const attn__tensor one = { #x, a->x, a->x##_stride, a->x##_stride, { batch, rows, heads }, \
                                   dim, 2, sizeof(float) }; \
        *t = one; \
        ATTN__TRY(attn__check_align(why, #x, a->x, ATTN__CELL_ALIGN)); \
        ATTN__TRY(attn__check_tensor(why, &spans, t++)); }
    ATTN__PLACE(out, a->heads, a->v_head_dim)
    ATTN__TRY(attn__check_given(why, "state", a->state, states));
    attn__span_add(&spans, "state", a->state, states);
    attn__span_add(&spans, "work", a->work, a->work_size);
    spans.outputs = spans.n;
    ATTN__PLACE(q, a->k_heads, a->head_dim)
    ATTN__PLACE(k, a->k_heads, a->head_dim)
    ATTN__PLACE(v, a->heads, a->v_head_dim)
    if (a->g) ATTN__PLACE(g, a->heads, a->g_per_component ? a->head_dim : 1)
    if (a->beta) ATTN__PLACE(beta, a->heads, 1)
#undef ATTN__PLACE
    attn__span_add(&spans, "q_lengths", a->q_lengths, (size_t)a->batch * sizeof(int));
    attn__span_add(&spans, "q_cum", a->q_cum, ((size_t)a->batch + 1) * sizeof(int));
    return attn__check_overlap(why, &spans);
}

ATTNDEF size_t attn_delta_workspace(const attn_delta_args *given)
{
    attn_delta_args a;
    attn__why why;
    size_t bytes;
    return attn__delta_sizes(&a, given, "attn_delta_workspace", &why, &bytes) == ATTN_OK
         ? bytes : (size_t)-1;
}

ATTNDEF attn_status attn_delta(const attn_delta_args *given)
{
    attn__delta_call call;
    attn_delta_args *a = &call.a;
    attn__why why;
    unsigned long long heads, each, tasks;
    size_t bytes;
    void *own;
    char *at = NULL;                      /* gcc does not see that attn__allocate sets it */
    int width;
    ATTN__TRY(attn__delta_sizes(a, given, "attn_delta", &why, &bytes));
    ATTN__TRY(attn__delta_places(a, &why));
    ATTN__TRY(attn__check_memory(&why, "work_size", "attn_delta_workspace", a->work, a->work_size,
                                 bytes));
    if (a->batch == 0 || a->n == 0) return ATTN_OK;
    ATTN__TRY(attn__allocate(&why, a->work, bytes, "the workspace", &own, &at));
    heads = (unsigned long long)a->batch * (unsigned)a->heads;
    each = 4ull * (unsigned)a->head_dim * (unsigned)a->v_head_dim;
    width = a->exec && !attn__is_little(heads * (unsigned)a->n, each) ? a->exec->width : 1;
    call.columns = (heads + 1) / 2 < (unsigned)width ? ATTN__DELTA_COLUMNS : a->v_head_dim;
    call.groups = (a->v_head_dim - 1) / call.columns + 1;
    tasks = heads * (unsigned)call.groups;
    call.runs = tasks < (unsigned)width ? (int)tasks : width;
    call.slots = (float *)(void *)at;
    attn__run(a->exec, call.runs, !attn__is_short(heads * (unsigned)a->n, each), attn__delta_run,
              &call);
    if (own) ATTN_FREE(a->user, own);
    return ATTN_OK;
}

static void attn__conv_task(void *arg, int task)
{
    const attn_conv_args *a = (const attn_conv_args *)arg;
    const attn__kernels *kernels = attn__table(a->backend);
    const int block = ATTN__CONV_BLOCK, blocks = (a->channels - 1) / block + 1;
    const int b = task / blocks, from = task % blocks * block, keep = a->width - 1;
    const int rows = attn__count(a->q_cum, a->q_lengths, a->n, b);
    const int n = attn__min(block, a->channels - from);
    const ptrdiff_t row = a->channels, first = a->q_cum ? a->q_cum[b] : (ptrdiff_t)b * a->n;
    float *y = a->y + first * row + from;
    float *state = keep ? a->state + (ptrdiff_t)b * keep * row + from : NULL;
    const float *x = a->x + first * row + from, *at[ATTN__CONV_WIDTH];
    float w[(ATTN__CONV_WIDTH + 1) * ATTN__CONV_BLOCK] = { 0 };
    int i, j, t;
/* row t of the state and x together */
#define ATTN__AT(t) ((t) < keep ? state + (t) * row : x + ((t) - keep) * row)
    for (j = 0; j < a->width; j++)
        for (i = 0; i < n; i++) w[j * block + i] = a->w[(ptrdiff_t)(from + i) * a->width + j];
    if (a->bias) memcpy(w + j * block, a->bias + from, (size_t)n * sizeof *w);
    for (t = 0; t < rows; t++, y += row) {
        for (j = 0; j < a->width; j++) at[j] = ATTN__AT(t + j);
        kernels->conv(y, at, w, block, a->width, n);
        if (a->silu) kernels->activate(y, y, NULL, (size_t)n, ATTN_SILU);
    }
    /* Ascending: a row of the state moves down before it is overwritten. */
    for (j = 0; rows > 0 && j < keep; j++)
        memcpy(state + j * row, ATTN__AT(rows + j), (size_t)n * sizeof(float));
    for (; !a->q_cum && t < a->n; t++, y += row) memset(y, 0, (size_t)n * sizeof(float));
#undef ATTN__AT
}

/* Checks a call and sets *rows to the rows of all entries. */
static attn_status attn__conv_check(attn_conv_args *a, attn__why *why, int *rows)
{
    attn__array array[] = { { "y", a->y, 0, 1 }, { "state", a->state, 0, 1 }, { "x", a->x, 0, 1 },
                            { "w", a->w, 0, 1 }, { "bias", a->bias, 0, 0 },
                            { "q_lengths", a->q_lengths, 0, 0 }, { "q_cum", a->q_cum, 0, 0 } };
    ATTN__SIZE(batch, 0) ATTN__SIZE(n, 0) ATTN__SIZE(channels, 1) ATTN__SIZE(width, 1)
    ATTN__OPTION(silu, 1) ATTN__OPTION(backend, ATTN__BACKENDS - 1)
    if (a->width > ATTN__CONV_WIDTH)
        return attn__fail(why, ATTN_E_SIZE, "width is %d but must be 1..%d", a->width,
                          ATTN__CONV_WIDTH);
    ATTN__TRY(attn__check_exec(a->exec, why));
    ATTN__TRY(attn__check_backend(why, a->backend));
    ATTN__TRY(attn__check_rows(why, a->batch, &a->n, a->q_lengths, a->q_cum, rows));
    if (a->batch == 0) *rows = 0;
    if (attn__bytes(&array[0].bytes, a->q_cum ? 1 : a->batch, *rows, a->channels, 1,
                    sizeof(float)) ||
        attn__bytes(&array[1].bytes, a->batch, a->width - 1, a->channels, 1, sizeof(float)) ||
        attn__bytes(&array[3].bytes, a->width, a->channels, 1, 1, sizeof(float)))
        return attn__fail(why, ATTN_E_OVERFLOW, "%d entries of %d rows of %d channels do not fit "
                          "the address space", a->batch, a->n, a->channels);
    if (a->batch > INT_MAX / ((a->channels - 1) / ATTN__CONV_BLOCK + 1))
        return attn__fail(why, ATTN_E_OVERFLOW, "there are more entries and channels than can be "
                          "counted");
    array[2].bytes = array[0].bytes;
    array[4].bytes = (size_t)a->channels * sizeof(float);
    array[5].bytes = (size_t)a->batch * sizeof(int);
    array[6].bytes = array[5].bytes + sizeof(int);
    return *rows ? attn__check_arrays(why, array, 7, 2) : ATTN_OK;
}

ATTNDEF attn_status attn_conv(const attn_conv_args *given)
{
    attn_conv_args a;
    attn__why why;
    unsigned long long all, each;
    int rows;
    attn__why_open(&why, "attn_conv", given ? given->user : NULL);
    if (!given) return attn__fail(&why, ATTN_E_NULL, "the attn_conv_args are NULL");
    a = *given;
    ATTN__TRY(attn__conv_check(&a, &why, &rows));
    if (rows == 0) return ATTN_OK;
    all = (unsigned long long)a.batch * (unsigned)a.n;
    each = (unsigned long long)a.channels * (unsigned)(a.width + 30 * a.silu);
    attn__run(attn__is_little(all, each) ? NULL : a.exec,
              a.batch * ((a.channels - 1) / ATTN__CONV_BLOCK + 1), !attn__is_short(all, each),
              attn__conv_task, &a);
    return ATTN_OK;
}
#undef ATTN__OPTION
#undef ATTN__SIZE
#endif /* ATTN_NO_DELTA */
#endif /* ATTN_NO_LAYERS */

/* =================================================================================================
 * 10  THREADS
 *
 * The pool runs one job at a time; callers queue for it. Publishing a job raises its number; a
 * worker that sees a new number joins the job while it is open, and one atomic counter deals out
 * the tasks. The caller runs tasks like a worker. When the counter has run out, the caller closes
 * the job, which turns late workers away, and waits until no worker is active.
 *
 * A worker without a job first spins, then sleeps. Waking a thread costs 35 us and more in a
 * virtual machine, so a worker spins only while the next job is likely to arrive soon, and never on
 * a busy machine (attn__pool_adapt). Workers take the lock only to sleep and to wake the caller;
 * callers take it to begin and to end a job.
 *
 * On Linux the pool keeps its workers off the caller's CPU if another CPU is allowed: the kernel
 * wakes a worker on the CPU where it ran last, even if the caller runs there now, and its load
 * balancer acts only after the call is over. See PLACEMENT below.
 * ============================================================================================== */
#ifdef ATTN_THREADS
/* ---- system interface: lock, condition variables, threads, time ------------------------------ */
#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
typedef SRWLOCK            attn__lock;
typedef CONDITION_VARIABLE attn__cond;
typedef HANDLE             attn__thread;
#define ATTN__WORKER       DWORD WINAPI
#define ATTN__WORKER_END   0
static int  attn__lock_init(attn__lock *l) { InitializeSRWLock(l); return 1; }
static void attn__lock_free(attn__lock *l) { (void)l; }
static void attn__lock_take(attn__lock *l) { AcquireSRWLockExclusive(l); }
static void attn__lock_drop(attn__lock *l) { ReleaseSRWLockExclusive(l); }
static int  attn__cond_init(attn__cond *c) { InitializeConditionVariable(c); return 1; }
static void attn__cond_free(attn__cond *c) { (void)c; }
static void attn__cond_wait(attn__cond *c, attn__lock *l)
{
    (void)SleepConditionVariableSRW(c, l, INFINITE, 0);
}
static void attn__cond_signal(attn__cond *c) { WakeConditionVariable(c); }
static void attn__cond_broadcast(attn__cond *c) { WakeAllConditionVariable(c); }
static int  attn__thread_start(attn__thread *t, DWORD (WINAPI *f)(void *), void *arg)
{
    *t = CreateThread(NULL, 0, f, arg, 0, NULL);
    return *t != NULL;
}
static void attn__thread_join(attn__thread t)
{
    (void)WaitForSingleObject(t, INFINITE);
    (void)CloseHandle(t);
}
static int attn__processors(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return (int)info.dwNumberOfProcessors;
}
static long attn__process(void) { return 0; }        /* Windows has no fork() */
static long long attn__microseconds(void)
{
    LARGE_INTEGER ticks, second;
    (void)QueryPerformanceCounter(&ticks);
    (void)QueryPerformanceFrequency(&second);
    /* in integers: a conversion to double would raise the caller's inexact flag */
    return ticks.QuadPart / second.QuadPart * 1000000
        + ticks.QuadPart % second.QuadPart * 1000000 / second.QuadPart;
}
#elif !defined(__unix__) && !defined(__APPLE__) && !defined(__HAIKU__)
#error "attn.h: ATTN_THREADS knows pthreads and Win32; here give an attn_exec of your own"
#else
#include <pthread.h>
#include <sys/time.h>                     /* gettimeofday: declared under -std=c99 as well */
#include <unistd.h>
typedef pthread_mutex_t attn__lock;
typedef pthread_cond_t  attn__cond;
typedef pthread_t       attn__thread;
#define ATTN__WORKER     void *
#define ATTN__WORKER_END NULL
static int  attn__lock_init(attn__lock *l) { return pthread_mutex_init(l, NULL) == 0; }
static void attn__lock_free(attn__lock *l) { (void)pthread_mutex_destroy(l); }
static void attn__lock_take(attn__lock *l) { (void)pthread_mutex_lock(l); }
static void attn__lock_drop(attn__lock *l) { (void)pthread_mutex_unlock(l); }
static int  attn__cond_init(attn__cond *c) { return pthread_cond_init(c, NULL) == 0; }
static void attn__cond_free(attn__cond *c) { (void)pthread_cond_destroy(c); }
static void attn__cond_wait(attn__cond *c, attn__lock *l) { (void)pthread_cond_wait(c, l); }
static void attn__cond_signal(attn__cond *c) { (void)pthread_cond_signal(c); }
static void attn__cond_broadcast(attn__cond *c) { (void)pthread_cond_broadcast(c); }
static int  attn__thread_start(attn__thread *t, void *(*f)(void *), void *arg)
{
    return pthread_create(t, NULL, f, arg) == 0;
}
static void attn__thread_join(attn__thread t) { (void)pthread_join(t, NULL); }
static int  attn__processors(void) { return (int)sysconf(_SC_NPROCESSORS_ONLN); }
static long attn__process(void) { return (long)getpid(); }
static long long attn__microseconds(void)
{
    struct timeval t = { 0, 0 };
    (void)gettimeofday(&t, NULL);
    return (long long)t.tv_sec * 1000000 + (long long)t.tv_usec;
}
#endif

/* Sequentially consistent: all threads agree on the order of these operations. (The store is an
   exchange because qemu lets a load overtake a plain store of ARM.) */
#if defined(__GNUC__) || defined(__clang__)
typedef int attn__atomic;
static int  attn__atomic_add(attn__atomic *x, int by)           /* returns the value before */
{
    return __atomic_fetch_add(x, by, __ATOMIC_SEQ_CST);
}
static int  attn__atomic_get(attn__atomic *x) { return __atomic_load_n(x, __ATOMIC_SEQ_CST); }
static void attn__atomic_set(attn__atomic *x, int to)
{
    (void)__atomic_exchange_n(x, to, __ATOMIC_SEQ_CST);
}
#elif defined(__TINYC__)                  /* x86: tcc has no builtins */
typedef volatile int attn__atomic;
static int  attn__atomic_add(attn__atomic *x, int by)
{
    __asm__ __volatile__("lock; xaddl %0, %1" : "+r"(by), "+m"(*x) : : "memory");
    return by;
}
static int  attn__atomic_get(attn__atomic *x) { return attn__atomic_add(x, 0); }
static void attn__atomic_set(attn__atomic *x, int to)
{
    __asm__ __volatile__("xchgl %0, %1" : "+r"(to), "+m"(*x) : : "memory");
}
#else
typedef volatile LONG attn__atomic;
static int  attn__atomic_add(attn__atomic *x, int by) { return (int)InterlockedExchangeAdd(x, by); }
static int  attn__atomic_get(attn__atomic *x) { return (int)InterlockedCompareExchange(x, 0, 0); }
static void attn__atomic_set(attn__atomic *x, int to) { (void)InterlockedExchange(x, to); }
#endif

/* Yields the core's resources to its other hardware thread for some cycles. */
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
#define ATTN__SPIN_PAUSE() __asm__ __volatile__("pause")
#elif defined(__GNUC__) && defined(__aarch64__)
#define ATTN__SPIN_PAUSE() __asm__ __volatile__("yield")
#elif defined(_MSC_VER)
#define ATTN__SPIN_PAUSE() YieldProcessor()
#else
#define ATTN__SPIN_PAUSE() ((void)0)
#endif

/* 1 while this thread runs a task of any pool. Such a thread never waits for a pool: it could wait
   for itself, even through other pools. Without thread-local variables no thread waits for a busy
   pool (ATTN_NO_THREAD_LOCAL: define it for a compiler that has none). */
#if !defined(ATTN_NO_THREAD_LOCAL) && (defined(__GNUC__) || defined(__clang__))
static __thread int attn__in_task;
enum { ATTN__TASKS_KNOWN = 1 };
#elif !defined(ATTN_NO_THREAD_LOCAL) && defined(_MSC_VER)
static __declspec(thread) int attn__in_task;
enum { ATTN__TASKS_KNOWN = 1 };
#else
static int attn__in_task;                 /* never written */
enum { ATTN__TASKS_KNOWN = 0 };
#endif

/* ---- the pool -------------------------------------------------------------------------------- */
enum {
    ATTN__POOL_MOST = 256,                /* most threads of a pool */
    ATTN__SPIN_STEP = 64,                 /* pauses between two readings of the clock: about 2 us */
    ATTN__PREEMPTED = 300,                /* us between two readings: another thread ran here */
    ATTN__MISSES_MOST = 6,                /* the shortest spin is ATTN_POOL_SPIN >> 6 */
    ATTN__STREAK = 8,                     /* jobs in quick succession: more than one call has */
    ATTN__CROWDED = 4000,                 /* us without spinning after a preemption; doubled, */
    ATTN__CROWDED_MOST = 256000,          /* up to this limit, if the next one follows soon */
    ATTN__ASLEEP = -2                     /* a worker's cpu, set and reset under the lock */
};
/* job states; AWAITED: closed, and the caller sleeps until no worker is active */
enum { ATTN__CLOSED, ATTN__OPEN, ATTN__AWAITED };

typedef struct attn__worker {
    attn_pool *pool;
    attn__thread thread;
    attn__atomic thread_id, cpu;          /* PLACEMENT: Linux's thread number; the latest CPU, -1 if
                                             unknown, ATTN__ASLEEP in attn__pool_sleep */
    attn__atomic removed;                 /* 1 + the CPU removed from the affinity mask, or 0 */
    unsigned long mask_sum;               /* checksum of the mask after the removal */
} attn__worker;

struct attn_pool {
    attn__lock lock;                      /* guards all plain members but the job's */
    attn__cond job, done, idle;           /* signals: new job; no worker active; pool not busy */
    attn__atomic next, number;            /* next task of the job; number of the latest job */
    attn__atomic open, active;            /* job state; workers that may have joined */
    int threads, processors;              /* width, including the caller's thread; CPUs online */
    int workers, sleeping;                /* threads started; number of them that sleep */
    int busy, stop;                       /* a job is running; the workers must end */
    int misses;                           /* pauses longer than ATTN_POOL_SPIN in a row */
    int streak;                           /* pauses that were not longer, in a row */
    long long ended;                      /* us: end of the latest job */
    long long crowded;                    /* us: latest preemption of a spin */
    int crowded_for;                      /* us without spinning after a preemption */
    attn__atomic spin;                    /* us that a worker spins before it sleeps */
    long process;                         /* id of the creator; a child of fork() has no workers */
    int n;                                /* the job; constant while a worker is active */
    void (*task)(void *arg, int i);
    void *arg;
    attn__worker worker[ATTN__POOL_MOST];
};

/* ---- PLACEMENT: Linux only ---------------------------------------------------------------------
   When a job starts, each worker that sleeps or last ran on the caller's CPU gets an affinity mask
   without this CPU, if another CPU remains. The worker restores its mask before its first task. So
   a mask set by the user or by a cpuset is narrowed until the worker wakes, and never widened: if
   the mask changed in between, its checksum differs and the worker leaves the mask alone. On an
   error (the CPU is gone, the call is forbidden) the system places the thread. */
#if defined(__linux__) && !defined(ATTN_NO_AFFINITY)
#include <sys/syscall.h>
#ifndef __cplusplus
long syscall(long number, ...);           /* unistd.h hides it under -std=c99 */
#endif
enum { ATTN__MASK_WORDS = 8192 / (8 * (int)sizeof(long)) };  /* Linux supports at most 8192 CPUs */
typedef struct attn__mask { unsigned long word[ATTN__MASK_WORDS]; long bytes; } attn__mask;

static int attn__thread_id(void) { return (int)syscall(SYS_gettid); }

/* Returns the CPU of this thread, -1 if unknown. */
static int attn__this_cpu(void)
{
    unsigned cpu = 0;
    return syscall(SYS_getcpu, &cpu, NULL, NULL) == 0 ? (int)cpu : -1;
}

/* Reads the mask of a thread (0: this thread). Returns 0 on an error. */
static int attn__mask_get(attn__mask *m, int thread_id)
{
    memset(m, 0, sizeof *m);
    m->bytes = syscall(SYS_sched_getaffinity, (long)thread_id, (long)sizeof m->word, m->word);
    return m->bytes > 0;
}

static int attn__mask_set(const attn__mask *m, int thread_id)
{
    return syscall(SYS_sched_setaffinity, (long)thread_id, m->bytes, m->word) == 0;
}

static unsigned long *attn__mask_word(attn__mask *m, int cpu)
{
    return m->word + cpu / (8 * (int)sizeof(long));
}

static unsigned long attn__mask_bit(int cpu) { return 1ul << cpu % (8 * (int)sizeof(long)); }

static unsigned long attn__mask_sum(const attn__mask *m)
{
    unsigned long sum = 5381;
    int i;
    for (i = 0; i < ATTN__MASK_WORDS; i++) sum = sum * 33 ^ m->word[i];
    return sum;
}

/* Adds the CPU that attn__move_off removed, if the mask has not changed since. */
static int attn__mask_restore(attn__mask *m, const attn__worker *w, int removed)
{
    if (removed == 0 || attn__mask_sum(m) != w->mask_sum) return 0;
    *attn__mask_word(m, removed - 1) |= attn__mask_bit(removed - 1);
    return 1;
}

/* Removes `cpu` from the worker's mask, unless the mask would be empty. The caller holds the pool's
   lock. */
static void attn__move_off(attn__worker *w, int cpu)
{
    attn__mask m;
    const int thread_id = attn__atomic_get(&w->thread_id), removed = attn__atomic_get(&w->removed);
    const int asleep = attn__atomic_get(&w->cpu) == ATTN__ASLEEP;
    int i, restored;
    /* Leaves the mask alone if this CPU is already removed, and while another CPU is removed from
       an awake worker, which restores its mask itself. */
    if (thread_id == 0 || removed == cpu + 1 || (removed && !asleep)) return;
    if (!attn__mask_get(&m, thread_id)) return;
    restored = attn__mask_restore(&m, w, removed);
    if (!restored && !(*attn__mask_word(&m, cpu) & attn__mask_bit(cpu))) return;
    *attn__mask_word(&m, cpu) &= ~attn__mask_bit(cpu);
    for (i = 0; i < ATTN__MASK_WORDS && m.word[i] == 0; i++) continue;
    if (i == ATTN__MASK_WORDS) return;
    w->mask_sum = attn__mask_sum(&m);
    attn__atomic_set(&w->removed, cpu + 1);
    if (!attn__mask_set(&m, thread_id)) attn__atomic_set(&w->removed, 0);
}

/* Called by the worker: restores its mask. */
static void attn__move_back(attn__worker *w)
{
    attn__mask m;
    const int removed = attn__atomic_get(&w->removed);
    if (removed == 0) return;
    if (attn__mask_get(&m, 0) && attn__mask_restore(&m, w, removed)) (void)attn__mask_set(&m, 0);
    attn__atomic_set(&w->removed, 0);
}
#else
static int  attn__thread_id(void) { return 0; }
static int  attn__this_cpu(void) { return -1; }
static void attn__move_off(attn__worker *w, int cpu) { (void)w; (void)cpu; }
static void attn__move_back(attn__worker *w) { (void)w; }
#endif

/* ---- spinning -------------------------------------------------------------------------------- */
typedef struct attn__spin {
    attn__atomic *cpu;                    /* NULL, or publishes the CPU of this thread */
    long long until, now;                 /* us: end; latest reading of the clock */
    int pauses, preempted;
} attn__spin;

/* Starts a spin of at most `us` microseconds. */
static attn__spin attn__spin_make(attn__atomic *cpu, int us)
{
    attn__spin s = { cpu, 0, 0, 0, 0 };
    if (cpu) attn__atomic_set(cpu, attn__this_cpu());
    s.now = attn__microseconds();
    s.until = s.now + us;
    return s;
}

/* Pauses. Returns 0 when the spin should end: its time is over, another thread ran on this CPU, or
   the clock was set back. */
static int attn__spin_more(attn__spin *s)
{
    const long long before = s->now;
    ATTN__SPIN_PAUSE();
    if (++s->pauses % ATTN__SPIN_STEP != 0) return 1;
    if (s->cpu) attn__atomic_set(s->cpu, attn__this_cpu());
    s->now = attn__microseconds();
    s->preempted = s->now - before > ATTN__PREEMPTED;
    return s->now < s->until && s->now >= before && !s->preempted;
}

/* ---- workers --------------------------------------------------------------------------------- */

/* Runs tasks until none is left. While attn__in_task is set, these tasks never wait for a pool. */
static void attn__pool_work(attn_pool *p)
{
    int i;
    if (ATTN__TASKS_KNOWN) attn__in_task = 1;
    /* Every thread adds once more than there are tasks: the counter may wrap to INT_MIN. */
    while ((unsigned)(i = attn__atomic_add(&p->next, 1)) < (unsigned)p->n) p->task(p->arg, i);
    if (ATTN__TASKS_KNOWN) attn__in_task = 0;
}

/* Records that a spin was preempted at `now`. The caller holds the pool's lock. */
static void attn__pool_crowd(attn_pool *p, long long now)
{
    const int again = now - p->crowded < 4ll * p->crowded_for;
    p->crowded_for = again ? attn__min(2 * p->crowded_for, ATTN__CROWDED_MOST) : ATTN__CROWDED;
    p->crowded = now;
}

/* Sleeps until there is a job after the one numbered `seen`. Returns 0 at the end of the pool. */
static int attn__pool_sleep(attn__worker *w, int seen, const attn__spin *s)
{
    attn_pool *p = w->pool;
    int stop;
    attn__lock_take(&p->lock);
    if (s->preempted) attn__pool_crowd(p, s->now);
    attn__atomic_set(&w->cpu, ATTN__ASLEEP);
    p->sleeping++;
    while (!p->stop && attn__atomic_get(&p->number) == seen) attn__cond_wait(&p->job, &p->lock);
    p->sleeping--;
    attn__atomic_set(&w->cpu, -1);
    stop = p->stop;
    attn__lock_drop(&p->lock);
    return !stop;
}

/* Waits for a job after the one numbered `seen`: spins, then sleeps. Returns 0 at the end of the
   pool. */
static int attn__pool_await(attn__worker *w, int seen)
{
    attn_pool *p = w->pool;
    attn__spin s = attn__spin_make(&w->cpu, attn__atomic_get(&p->spin));
    while (attn__atomic_get(&p->number) == seen && attn__spin_more(&s)) continue;
    return attn__atomic_get(&p->number) != seen || attn__pool_sleep(w, seen, &s);
}

/* Ends the work of a worker on a job. If the caller sleeps, the last worker wakes it. This takes
   the lock, because the caller holds the lock until it sleeps. */
static void attn__pool_leave(attn_pool *p)
{
    if (attn__atomic_add(&p->active, -1) > 1 || attn__atomic_get(&p->open) != ATTN__AWAITED) return;
    attn__lock_take(&p->lock);
    attn__cond_signal(&p->done);
    attn__lock_drop(&p->lock);
}

/* A worker thread, from create to destroy. */
static ATTN__WORKER attn__pool_worker(void *arg)
{
    attn__worker *w = (attn__worker *)arg;
    attn_pool *p = w->pool;
    int seen = 0;                         /* number of the latest job seen */
    attn__atomic_set(&w->thread_id, attn__thread_id());
    while (attn__pool_await(w, seen)) {
        seen = attn__atomic_get(&p->number);
        attn__move_back(w);
        /* The worker increments `active`, then reads `open`; the caller closes the job, then reads
           `active`. So at least one of them sees the other's write. The worker may join a later job
           than the one numbered `seen`. */
        (void)attn__atomic_add(&p->active, 1);
        if (attn__atomic_get(&p->open) == ATTN__OPEN) attn__pool_work(p);
        attn__pool_leave(p);
    }
    return ATTN__WORKER_END;
}

/* ---- callers --------------------------------------------------------------------------------- */

/* Waits until no worker is active in the closed job, and takes the lock. Once `active` is 0, no
   worker runs: late arrivals see the job closed. */
static void attn__pool_wait(attn_pool *p)
{
    attn__spin s = attn__spin_make(NULL, attn__atomic_get(&p->spin) ? (ATTN_POOL_SPIN) : 0);
    while (attn__atomic_get(&p->active) > 0 && attn__spin_more(&s)) continue;
    attn__lock_take(&p->lock);
    if (attn__atomic_get(&p->active) == 0) return;
    attn__atomic_set(&p->open, ATTN__AWAITED);
    while (attn__atomic_get(&p->active) > 0) attn__cond_wait(&p->done, &p->lock);
    attn__atomic_set(&p->open, ATTN__CLOSED);
}

/* Sets how long workers spin from the pause since the latest job: a pause longer than
   ATTN_POOL_SPIN halves the time, a shorter one restores it. Returns 1 if jobs come in quick
   succession, so that a worker that is woken now will be awake for the next ones. */
static int attn__pool_adapt(attn_pool *p)
{
    const long long now = attn__microseconds();
    const int crowded = p->threads > p->processors || now - p->crowded < p->crowded_for;
    if (now - p->ended <= (ATTN_POOL_SPIN)) {
        p->misses = 0;
        p->streak = attn__min(p->streak + 1, ATTN__STREAK);
    } else {
        p->misses = attn__min(p->misses + 1, ATTN__MISSES_MOST);
        p->streak = 0;
    }
    attn__atomic_set(&p->spin, crowded ? 0 : (ATTN_POOL_SPIN) >> p->misses);
    return !crowded && p->streak == ATTN__STREAK;
}

/* Waits until the pool is free, reserves it for this caller, and keeps the lock. Returns 0,
   without the lock, if the caller should run the tasks itself: one task, no workers here, the
   caller is or may be inside a task, or all workers sleep and waking them does not pay. */
static int attn__pool_begin(attn_pool *p, int n, int *wake)
{
    if (!p || p->workers == 0 || n < 2 || attn__in_task) return 0;
    if (p->process != attn__process()) return 0;     /* a child of fork(): no threads, no lock */
    attn__lock_take(&p->lock);
    if (!p->busy) *wake |= attn__pool_adapt(p);
    if ((p->busy && !ATTN__TASKS_KNOWN) || (p->sleeping == p->workers && !*wake)) {
        p->ended = attn__microseconds();
        attn__lock_drop(&p->lock);
        return 0;
    }
    while (p->busy) attn__cond_wait(&p->idle, &p->lock);
    p->busy = 1;
    return 1;
}

/* Publishes the reserved job, moves workers off the caller's CPU, wakes at most one worker per
   task, and drops the lock. */
static void attn__pool_publish(attn_pool *p, int wake)
{
    const int cpu = attn__this_cpu();
    int i;
    for (i = 0; cpu >= 0 && i < p->workers; i++) {
        attn__worker *w = p->worker + i;
        const int last = attn__atomic_get(&w->cpu);
        if (last == cpu || (last == ATTN__ASLEEP && wake)) attn__move_off(w, cpu);
    }
    attn__atomic_set(&p->next, 0);
    attn__atomic_set(&p->open, ATTN__OPEN);
    /* The number wraps before it could overflow. */
    attn__atomic_set(&p->number, (attn__atomic_get(&p->number) & 0x3FFFFFFF) + 1);
    if (wake && p->n - 1 >= p->sleeping) attn__cond_broadcast(&p->job);
    else for (i = 1; wake && i < p->n; i++) attn__cond_signal(&p->job);
    attn__lock_drop(&p->lock);
}

/* `run` of the pool's attn_exec: runs tasks 0 .. n-1. A short job of attn__run wakes no worker
   unless such jobs come in quick succession. */
static void attn__pool_run(void *pool, int n, void (*task)(void *arg, int i), void *arg)
{
    attn_pool *p = (attn_pool *)pool;
    int wake = task != attn__run_one || ((const attn__job *)arg)->wake, i;
    if (!attn__pool_begin(p, n, &wake)) {
        for (i = 0; i < n; i++) task(arg, i);
        return;
    }
    p->n = n;
    p->task = task;
    p->arg = arg;
    attn__pool_publish(p, wake);
    attn__pool_work(p);
    /* All tasks are taken, but some may still run: `arg` must remain valid until they end. */
    attn__atomic_set(&p->open, ATTN__CLOSED);
    attn__pool_wait(p);
    p->busy = 0;
    p->ended = attn__microseconds();
    attn__cond_signal(&p->idle);          /* wakes one caller, which will wake the next */
    attn__lock_drop(&p->lock);
}

/* ---- create and destroy ---------------------------------------------------------------------- */

/* Destroys the first `made` of the lock and the condition variables, and frees the memory. */
static void attn__pool_free(attn_pool *p, int made)
{
    if (made > 0) attn__lock_free(&p->lock);
    if (made > 1) attn__cond_free(&p->job);
    if (made > 2) attn__cond_free(&p->done);
    if (made > 3) attn__cond_free(&p->idle);
    ATTN_FREE(NULL, p);
}

ATTNDEF attn_pool *attn_pool_create(int threads)
{
    const int processors = attn__processors();
    attn_pool *p;
    attn__worker *w;
    int made = 0;
    if (threads < 0 || threads > ATTN__POOL_MOST) return NULL;
    if (threads == 0) threads = attn__max(attn__min(processors, ATTN__POOL_MOST), 1);
    p = (attn_pool *)ATTN_MALLOC(NULL, sizeof *p);
    if (!p) return NULL;
    /* Zeroed, so that destroy can undo a creation at any point. */
    memset(p, 0, sizeof *p);
    p->process = attn__process();
    p->processors = processors;
    p->threads = threads;
    if (!attn__lock_init(&p->lock) || (made++, !attn__cond_init(&p->job)) ||
        (made++, !attn__cond_init(&p->done)) || (made++, !attn__cond_init(&p->idle))) {
        attn__pool_free(p, made);
        return NULL;
    }
    /* All threads or none: attn_pool_exec promises this width, which includes the caller's
       thread. */
    for (; p->workers < threads - 1; p->workers++) {
        w = p->worker + p->workers;
        w->pool = p;
        w->cpu = -1;
        if (!attn__thread_start(&w->thread, attn__pool_worker, w)) {
            attn_pool_destroy(p);
            return NULL;
        }
    }
    return p;
}

ATTNDEF attn_exec attn_pool_exec(attn_pool *p)
{
    attn_exec e = { p, p ? p->threads : 1, attn__pool_run };
    return e;
}

ATTNDEF void attn_pool_destroy(attn_pool *p)
{
    int i;
    if (!p) return;
    if (p->process != attn__process()) {
        /* The threads do not exist in this process, and the lock may have been held at the fork. */
        attn__pool_free(p, 0);
        return;
    }
    attn__lock_take(&p->lock);
    /* Wakes the workers that sleep. Workers that spin read `stop` before they sleep. */
    p->stop = 1;
    attn__cond_broadcast(&p->job);
    attn__lock_drop(&p->lock);
    for (i = 0; i < p->workers; i++) attn__thread_join(p->worker[i].thread);
    attn__pool_free(p, 4);
}
#endif /* ATTN_THREADS */

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wignored-pragmas"
#pragma float_control(pop)
#pragma clang diagnostic pop
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
#endif /* ATTN_IMPLEMENTATION */
#endif /* !ATTN__ISA */

/* Editors parse the kernels an additional time, as those of AVX2 under other names. */
#if (defined(__INTELLISENSE__) || defined(ATTN_IDE)) && defined(ATTN__X86) && \
    !defined(ATTN__ISA) && !defined(ATTN__EDITOR)
#define ATTN__ISA ATTN__ISA_AVX2
#define ATTN__EDITOR
#endif

#ifdef ATTN__ISA   /* the kernel pass: from here to the end, once for each instruction set */
/* =================================================================================================
 * 11  VECTOR VOCABULARY
 *
 * The operations that the kernels of section 12 are written in. Each instruction set has one block
 * with 25 of them, roughly in the order of the list below; the blocks of x86 share most of them, as
 * do those of WebAssembly and RISC-V. The other operations are built from these after the blocks,
 * unless a block defines a better one.
 * To add an instruction set (tests/checks/new_isa.sh does exactly this):
 *   1. Sections 1 and 4: append its enumerator to attn_backend, its name to attn__backend_names.
 *   2. Section 4: define a macro like ATTN__NEON if the compiler supports it, and include its
 *      header. If processors differ, set its bit in attn__cpu_ask. Include this file for it, with
 *      ATTN__ISA a name for the enumerator's value (ATTN__ISA_...), and add its table to
 *      attn__tables, best first.
 *   3. Here: copy a block, for example that of NEON, and fill in the operations.
 * ATTN__FN(name)        a name with the suffix of this instruction set
 * ATTN__TARGET          the attribute that lets a function use the instructions
 * ATTN__LANES           floats of a vector: 4, 8 or 16
 * ATTN__ROWS            rows of the register tile (section 12): 6 or 12
 * ATTN__TRANSPOSED      components of ATTN__LANES keys that attn__transpose takes: 4 or 8
 * ATTN__HAS_HALF        1 if an instruction widens half, else 0, or an expression if processors
 *                       with this instruction set differ
 * ATTN__HAS_BF16        1 if widening bfloat16 takes at most two instructions, else 0
 * ============================================================================================== */
/* Every operation, and every other part of a kernel, is inlined into a function with the same
   target. */
#define ATTN__V ATTN__INLINE ATTN__TARGET
/* The same for a part that is inlined many times, each time with other constants. Without
   optimisation, or with gcc's address or thread sanitizer, such a part is a single function: gcc
   would compile what the constants exclude (gcc -O0: 4 minutes and 7 GB instead of 4 seconds). */
#if defined(__GNUC__) && \
    (!defined(__OPTIMIZE__) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
     defined(__SANITIZE_HWADDRESS__))
#define ATTN__TEMPLATE static ATTN__UNUSED ATTN__TARGET
#else
#define ATTN__TEMPLATE ATTN__V
#endif

/* The 25 operations that every block defines, lane by lane: */
#define attn__vec         ATTN__FN(vec)              /* type: ATTN__LANES floats */
#define attn__vmask       ATTN__FN(vmask)            /* type: one truth per lane */
#define attn__vset        ATTN__FN(vset)             /* every lane x */
#define attn__vload       ATTN__FN(vload)            /* p[lane], any alignment */
#define attn__vstore      ATTN__FN(vstore)           /* p[lane] = a */
#define attn__vadd        ATTN__FN(vadd)             /* a + b */
#define attn__vsub        ATTN__FN(vsub)             /* a - b */
#define attn__vmul        ATTN__FN(vmul)             /* a * b */
#define attn__vdiv        ATTN__FN(vdiv)             /* a / b, correctly rounded */
#define attn__vmax        ATTN__FN(vmax)             /* the larger one; may lose a NaN */
#define attn__vfma        ATTN__FN(vfma)             /* a * b + c, rounded once if possible */
#define attn__vpow2       ATTN__FN(vpow2)            /* 2^n; the low bits of t hold n + 127 */
#define attn__vless       ATTN__FN(vless)            /* a < b; false if either is NaN */
#define attn__same_bits   ATTN__FN(same_bits)        /* 1 if the 32 bits are equal */
#define attn__is_nan      ATTN__FN(is_nan)           /* a != a */
#define attn__choose      ATTN__FN(choose)           /* m ? a : b */
#define attn__or_mask     ATTN__FN(or_mask)          /* a || b */
#define attn__zero_bytes  ATTN__FN(zero_bytes)       /* p[lane] == 0, of ATTN__LANES bytes */
#define attn__vwiden      ATTN__FN(vwiden)           /* p[lane], 16 bits, as a float */
/* in double, for sums of norms: */
#define attn__wide        ATTN__FN(wide)             /* type: ATTN__LANES / 2 doubles */
#define attn__wide_load   ATTN__FN(wide_load)        /* p[lane] */
#define attn__wide_store  ATTN__FN(wide_store)       /* p[lane] = a */
#define attn__wide_add    ATTN__FN(wide_add)         /* s + float p[lane], or + its square */
#define attn__wide_root   ATTN__FN(wide_root)        /* attn__sqrt(x), of one double */
/* across lanes: */
#define attn__mask_bits   ATTN__FN(mask_bits)        /* bit `lane`: 1 if true there */
/* Operations that a block may leave to the code after the blocks: */
#define attn__zero_where  ATTN__FN(zero_where)       /* m ? +0 : a */
/* x[c][lane]: float c of row `lane`, c < ATTN__TRANSPOSED; rows are `row` bytes apart (fewer
   instructions than a stride in floats); lanes after `last` repeat lane `last`. Blocks without
   ATTN__ZIP_LOW define it. */
#define attn__transpose   ATTN__FN(transpose)
#define attn__vpart       ATTN__FN(vpart)            /* type: which lanes are loaded */
#define attn__first       ATTN__FN(first)            /* lane < n */
#define attn__load_some   ATTN__FN(load_some)        /* some ? p[lane] : +0; reads only these */
#define attn__load_part   ATTN__FN(load_part)        /* load_some for the first n lanes */
#define attn__vbytes      ATTN__FN(vbytes)           /* p[lane], signed bytes, as a float */
#define attn__store_bytes ATTN__FN(store_bytes)      /* p[lane] = a, integers -128 .. 127 */
#define attn__sums        ATTN__FN(sums)             /* type: ATTN__LANES ints */
#define attn__sums_of     ATTN__FN(sums_of)          /* every lane x, minus ATTN__DOT_BIAS * sum */
/* s[lane] += products of four bytes: k[4 * lane ..] and q[0 .. 3]; k plus ATTN__DOT_BIAS. In a
   function with the attribute ATTN__DOT_TARGET. If processors differ, ATTN__DOT_ELSE calls another
   kernel and returns, or ATTN__DOT_OLD is 1 for attn__vdot_old. A block without ATTN__DOT_BIAS has
   none of the operations from attn__vbytes to attn__sums_floats. */
#define attn__vdot        ATTN__FN(vdot)
#define attn__vdot_old    ATTN__FN(vdot_old)         /* the same, for every processor */
#define attn__sums_floats ATTN__FN(sums_floats)      /* as floats */
#define attn__vnarrow     ATTN__FN(vnarrow)          /* p[lane] = a, rounded to nearest even */
#define attn__sum_lanes   ATTN__FN(sum_lanes)        /* the tree: halves added, +8, +4, +2, +1 */
#define attn__max_lane    ATTN__FN(max_lane)         /* the largest lane */

#if ATTN__ISA <= ATTN__ISA_AVX512
/* Most operations of the three x86 sets are the same intrinsics with other prefixes. They are
   written once, after the three blocks. ATTN__MM(op) and ATTN__SI(op) are operations of this width,
   ATTN__I and ATTN__F convert between floats and integers with the same bits. */
#if ATTN__ISA == ATTN__ISA_SSE2
/* ---- SSE2 ------------------------------------------------------------------------------------ */
/* SSE2 has no fma, so its bits differ. On x86 it tests the kernels with 4 lanes, as in NEON and
   WebAssembly. */
#define ATTN__FN(name) attn__##name##_sse2
#define ATTN__TARGET ATTN__ATTR("sse2")
#define ATTN__LANES 4
#define ATTN__ROWS 6
#define ATTN__TRANSPOSED 4
#define ATTN__HAS_HALF 0
#define ATTN__HAS_BF16 0
#define ATTN__MM(op) _mm_##op
#define ATTN__SI(op) _mm_##op##_si128
#define ATTN__I(a) _mm_castps_si128(a)
#define ATTN__F(a) _mm_castsi128_ps(a)
typedef __m128 attn__vec;
typedef __m128 attn__vmask;                          /* all bits of a lane are set or none */
typedef __m128i ATTN__FN(ints);
ATTN__V attn__vec attn__vfma(attn__vec a, attn__vec b, attn__vec c)
{
    attn__vec p = _mm_mul_ps(a, b);
#if defined(__GNUC__) || defined(__clang__)
    /* Always two roundings: with -mfma the compiler would otherwise fuse them. */
    __asm__("" : "+x"(p), "+x"(c));
#endif
    return _mm_add_ps(p, c);
}
ATTN__V attn__vmask attn__vless(attn__vec a, attn__vec b) { return _mm_cmplt_ps(a, b); }
ATTN__V attn__vmask attn__is_nan(attn__vec a) { return _mm_cmpunord_ps(a, a); }
ATTN__V attn__vmask attn__zero_bytes(const unsigned char *p)
{
    const __m128i zero = _mm_setzero_si128();
    int four;
    __m128i x;
    memcpy(&four, p, 4);
    /* four bytes, widened to 16 bits, then to 32 */
    x = _mm_unpacklo_epi8(_mm_cvtsi32_si128(four), zero);
    return _mm_castsi128_ps(_mm_cmpeq_epi32(_mm_unpacklo_epi16(x, zero), zero));
}
ATTN__V __m128i ATTN__FN(half_bits)(__m128i h);
ATTN__V attn__vec attn__vwiden(const unsigned short *p, const int how)
{
    const __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)p), zero = _mm_setzero_si128();
    if (how == ATTN_BF16) return _mm_castsi128_ps(_mm_unpacklo_epi16(zero, x));
    return _mm_castsi128_ps(ATTN__FN(half_bits)(_mm_unpacklo_epi16(x, zero)));
}
ATTN__V void attn__store_bytes(signed char *p, attn__vec a)
{
    const __m128i x = _mm_cvtps_epi32(a), y = _mm_packs_epi32(x, x);
    const int four = _mm_cvtsi128_si32(_mm_packs_epi16(y, y));
    memcpy(p, &four, 4);
}
ATTN__V __m128i ATTN__FN(bytes_at)(const signed char *p)
{
    __m128i x;
    int four;
    memcpy(&four, p, 4);
    x = _mm_cvtsi32_si128(four);
    x = _mm_unpacklo_epi8(x, x);
    return _mm_srai_epi32(_mm_unpacklo_epi16(x, x), 24);
}
#define ATTN__DOT_BIAS 0
/* Even and odd bytes as 16 bits, whose products are added in pairs. */
ATTN__V __m128i attn__vdot(__m128i s, const signed char *k, const signed char *q)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)k);
    __m128i y, even, odd;
    int four;
    memcpy(&four, q, 4);
    y = _mm_set1_epi32(four);
    even = _mm_madd_epi16(_mm_srai_epi16(_mm_slli_epi16(x, 8), 8),
                          _mm_srai_epi16(_mm_slli_epi16(y, 8), 8));
    odd = _mm_madd_epi16(_mm_srai_epi16(x, 8), _mm_srai_epi16(y, 8));
    return _mm_add_epi32(s, _mm_add_epi32(even, odd));
}
#define ATTN__FOUR(op, a) (a)
#define ATTN__LOAD_HALF(p) _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)(const void *)(p)))
typedef __m128d attn__wide;
#endif
#if ATTN__ISA == ATTN__ISA_AVX2
/* ---- AVX2 with FMA --------------------------------------------------------------------------- */
#ifndef ATTN__EDITOR
#define ATTN__FN(name) attn__##name##_avx2
#else
#define ATTN__FN(name) attn__##name##_editor
#endif
#define ATTN__TARGET ATTN__ATTR("avx2,fma,f16c")
#define ATTN__LANES 8
#define ATTN__ROWS 6
#define ATTN__TRANSPOSED 4
/* F16C is a separate extension; hypervisors may hide it. */
#define ATTN__HAS_HALF (attn__cpu() >> ATTN__CPU_F16C & 1u)
#define ATTN__HAS_BF16 1
#define ATTN__MM(op) _mm256_##op
#define ATTN__SI(op) _mm256_##op##_si256
#define ATTN__I(a) _mm256_castps_si256(a)
#define ATTN__F(a) _mm256_castsi256_ps(a)
#define ATTN__COMPARE _mm256_cmp_ps
typedef __m256 attn__vec;
typedef __m256 attn__vmask;                          /* all bits of a lane are set or none */
typedef __m256i ATTN__FN(ints);
#define ATTN__LOADS_SOME
typedef __m256i attn__vpart;
ATTN__V attn__vpart attn__first(int n)
{
    /* Eight lanes of this window: n times -1 (load), then 0 (skip). */
    static const int window[16] = { -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0 };
    const int *at = window + 8 - (n < 0 ? 0 : n > 8 ? 8 : n);
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}
/* A lane that is not loaded cannot fault, even if its page does not exist. */
ATTN__V attn__vec attn__load_some(const float *p, attn__vpart some)
{
    return _mm256_maskload_ps(p, some);
}
/* This instruction has three forms. Compilers mix them and then run out of registers in the tile,
   so one form is fixed here. */
#if (defined(__GNUC__) || defined(__clang__)) && !defined(ATTN__MSAN)
#define ATTN__FMA_IN_PLACE(c, a, b) __asm__("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b))
#endif
/* Eight bytes are widened to lanes of 32 bits, which can be compared. */
ATTN__V attn__vmask attn__zero_bytes(const unsigned char *p)
{
    const __m256i x = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(x, _mm256_setzero_si256()));
}
ATTN__V __m256i ATTN__FN(half_bits)(__m256i h);
ATTN__V attn__vec attn__vwiden(const unsigned short *p, const int how)
{
    const __m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
    if (how == ATTN_F16) return _mm256_cvtph_ps(x);
    if (how == ATTN_BF16)
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
    return _mm256_castsi256_ps(ATTN__FN(half_bits)(_mm256_cvtepu16_epi32(x)));
}
ATTN__V __m256i ATTN__FN(bf16_bits)(attn__vec a);
ATTN__V void attn__vnarrow(unsigned short *p, attn__vec a, const int how)
{
    const __m256i x = ATTN__FN(bf16_bits)(a);
    __m128i *to = (__m128i *)(void *)p;
    if (how == ATTN_F16) _mm_storeu_si128(to, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
    else _mm_storeu_si128(to, _mm_packus_epi32(_mm256_castsi256_si128(x),
                                               _mm256_extracti128_si256(x, 1)));
}
ATTN__V void attn__store_bytes(signed char *p, attn__vec a)
{
    const __m256i x = _mm256_cvtps_epi32(a);
    const __m128i y = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi16(y, y));
}
ATTN__V __m256i ATTN__FN(bytes_at)(const signed char *p)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}
#define ATTN__DOT_BIAS 0
/* |q| times k with the sign of q. A sum of two products is at most 2 * 127 * 127: 16 bits. */
ATTN__V __m256i attn__vdot(__m256i s, const signed char *k, const signed char *q)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)k);
    __m256i y, pairs;
    int four;
    memcpy(&four, q, 4);
    y = _mm256_set1_epi32(four);
    pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(y), _mm256_sign_epi8(x, y));
    return _mm256_add_epi32(s, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#define ATTN__FOUR(op, a) ATTN__FOURS(op, a)
#define ATTN__LOAD_HALF(p) _mm_loadu_ps(p)
typedef __m256d attn__wide;
/* keys 0..3 below, keys 4..7 above */
ATTN__V attn__vec ATTN__FN(rows_at)(const void *p, int i, ptrdiff_t row, int last)
{
    const float *low = (const float *)attn__nth(p, attn__min(i, last), row);
    const float *high = (const float *)attn__nth(p, attn__min(i + 4, last), row);
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(low)), _mm_loadu_ps(high), 1);
}
#endif
#if ATTN__ISA == ATTN__ISA_AVX512
/* ---- AVX-512 --------------------------------------------------------------------------------- */
/* Only AVX-512F, which every processor with AVX-512 has; DQ and VL came later. */
#define ATTN__FN(name) attn__##name##_avx512
#define ATTN__TARGET ATTN__ATTR("avx512f,avx2,fma")
#define ATTN__LANES 16
#define ATTN__ROWS 12
#define ATTN__TRANSPOSED 8
#define ATTN__HAS_HALF 1
#define ATTN__HAS_BF16 1
#define ATTN__MM(op) _mm512_##op
#define ATTN__SI(op) _mm512_##op##_si512
#define ATTN__I(a) _mm512_castps_si512(a)
#define ATTN__F(a) _mm512_castsi512_ps(a)
#define ATTN__COMPARE _mm512_cmp_ps_mask
typedef __m512 attn__vec;
typedef __mmask16 attn__vmask;                       /* one bit a lane */
typedef __m512i ATTN__FN(ints);
/* Keeps a factor that several rows share in a register: gcc would load it again for each of three
   rows. */
#if (defined(__GNUC__) || defined(__clang__)) && !defined(ATTN__MSAN)
#define ATTN__IN_REGISTER(x) __asm__("" : "+v"(x))
#endif
#define ATTN__LOADS_SOME
typedef __mmask16 attn__vpart;
/* A mask with the lowest n bits set. Lanes that are not loaded cannot fault. */
ATTN__V attn__vpart attn__first(int n)
{
    return (__mmask16)((1u << (n < 0 ? 0 : n > 16 ? 16 : n)) - 1u);
}
ATTN__V attn__vec attn__load_some(const float *p, attn__vpart some)
{
    return _mm512_maskz_loadu_ps(some, p);
}
ATTN__V attn__vmask attn__same_bits(attn__vec a, attn__vec b)
{
    return _mm512_cmpeq_epi32_mask(_mm512_castps_si512(a), _mm512_castps_si512(b));
}
ATTN__V attn__vec attn__choose(attn__vmask m, attn__vec a, attn__vec b)
{
    return _mm512_mask_blend_ps(m, b, a);
}
ATTN__V attn__vmask attn__or_mask(attn__vmask a, attn__vmask b) { return (__mmask16)(a | b); }
ATTN__V unsigned attn__mask_bits(attn__vmask m) { return m; }
ATTN__V attn__vmask attn__zero_bytes(const unsigned char *p)
{
    const __m512i x = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm512_cmpeq_epi32_mask(x, _mm512_setzero_si512());
}
ATTN__V attn__vec attn__vwiden(const unsigned short *p, const int how)
{
    const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (how == ATTN_F16) return _mm512_cvtph_ps(x);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
ATTN__V __m512i ATTN__FN(bf16_bits)(attn__vec a);
ATTN__V void attn__vnarrow(unsigned short *p, attn__vec a, const int how)
{
    _mm256_storeu_si256((__m256i *)(void *)p, how == ATTN_F16
                        ? _mm512_maskz_cvtps_ph(0xffffu, a, _MM_FROUND_TO_NEAREST_INT)
                        : _mm512_cvtepi32_epi16(ATTN__FN(bf16_bits)(a)));
}
ATTN__V void attn__store_bytes(signed char *p, attn__vec a)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(a)));
}
ATTN__V __m512i ATTN__FN(bytes_at)(const signed char *p)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}
/* With VNNI; without it the kernel of AVX2 is used. The left-hand bytes are unsigned, so 128 is
   added to those of k, and 128 times the sum of q is subtracted. */
#define ATTN__DOT_BIAS 128
#define ATTN__DOT_TARGET ATTN__ATTR("avx512f,avx512bw,avx512vnni,avx2,fma")
#define ATTN__DOT_ELSE(kernel, arguments) \
    if (!(attn__cpu() >> ATTN__CPU_VNNI & 1u)) { attn__##kernel##_avx2 arguments; return; }
ATTN__INLINE ATTN__DOT_TARGET __m512i attn__vdot(__m512i s, const signed char *k,
                                                const signed char *q)
{
    const __m512i x = _mm512_loadu_si512((const void *)k);
    int four;
    memcpy(&four, q, 4);
    return _mm512_dpbusd_epi32(s, _mm512_xor_si512(x, _mm512_set1_epi32((int)0x80808080u)),
                               _mm512_set1_epi32(four));
}
/* Lanes 0..7 and 8..15. Floats are moved as doubles, because moving floats needs AVX-512DQ. */
#define ATTN__HALF(a, i) _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), i))
#define ATTN__FOUR(op, a) ATTN__FOURS(op, _mm256_##op(ATTN__HALF(a, 0), ATTN__HALF(a, 1)))
#define ATTN__LOAD_HALF(p) _mm256_loadu_ps(p)
typedef __m512d attn__wide;
/* Eight floats of row i in the low half, of row i + 4 in the high half, moved as doubles for the
   same reason. */
ATTN__V attn__vec ATTN__FN(rows_at)(const void *p, int i, ptrdiff_t row, int last)
{
    const double *low = (const double *)attn__nth(p, attn__min(i, last), row);
    const double *high = (const double *)attn__nth(p, attn__min(i + 4, last), row);
    return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castpd256_pd512(_mm256_loadu_pd(low)),
                                               _mm256_loadu_pd(high), 1));
}
#endif
/* ---- operations of x86 ----------------------------------------------------------------------- */
/* Operations of one instruction have no comment: the list above defines them. */
ATTN__V attn__vec attn__vset(float x) { return ATTN__MM(set1_ps)(x); }
ATTN__V attn__vec attn__vload(const float *p) { return ATTN__MM(loadu_ps)(p); }
ATTN__V void attn__vstore(float *p, attn__vec a) { ATTN__MM(storeu_ps)(p, a); }
ATTN__V attn__vec attn__vadd(attn__vec a, attn__vec b) { return ATTN__MM(add_ps)(a, b); }
ATTN__V attn__vec attn__vsub(attn__vec a, attn__vec b) { return ATTN__MM(sub_ps)(a, b); }
ATTN__V attn__vec attn__vmul(attn__vec a, attn__vec b) { return ATTN__MM(mul_ps)(a, b); }
ATTN__V attn__vec attn__vdiv(attn__vec a, attn__vec b) { return ATTN__MM(div_ps)(a, b); }
/* x86 returns b if either is NaN. */
ATTN__V attn__vec attn__vmax(attn__vec a, attn__vec b) { return ATTN__MM(max_ps)(a, b); }
ATTN__V attn__vec attn__vbytes(const signed char *p)
{
    return ATTN__MM(cvtepi32_ps)(ATTN__FN(bytes_at)(p));
}
typedef ATTN__FN(ints) attn__sums;
ATTN__V attn__sums attn__sums_of(int x) { return ATTN__MM(set1_epi32)(x); }
ATTN__V attn__vec attn__sums_floats(attn__sums s) { return ATTN__MM(cvtepi32_ps)(s); }
/* n + 127 is the exponent field of 2^n. Shifting by the 23 bits of the fraction moves it to its
   place and discards the other bits. */
ATTN__V attn__vec attn__vpow2(attn__vec t) { return ATTN__F(ATTN__MM(slli_epi32)(ATTN__I(t), 23)); }
#if ATTN__ISA != ATTN__ISA_AVX512         /* the masks of SSE2 and AVX2 are vectors */
ATTN__V attn__vmask attn__same_bits(attn__vec a, attn__vec b)
{
    return ATTN__F(ATTN__MM(cmpeq_epi32)(ATTN__I(a), ATTN__I(b)));
}
ATTN__V attn__vec attn__choose(attn__vmask m, attn__vec a, attn__vec b)
{
#if ATTN__ISA == ATTN__ISA_AVX2 && !defined(ATTN__MSAN)
    return _mm256_blendv_ps(b, a, m);
#else                                    /* SSE2 has no blend; msan sees a blend as a use of both */
    return ATTN__MM(or_ps)(ATTN__MM(and_ps)(m, a), ATTN__MM(andnot_ps)(m, b));
#endif
}
ATTN__V attn__vec attn__zero_where(attn__vmask m, attn__vec a) { return ATTN__MM(andnot_ps)(m, a); }
ATTN__V attn__vmask attn__or_mask(attn__vmask a, attn__vmask b) { return ATTN__MM(or_ps)(a, b); }
/* movemask collects the sign bits of the lanes. */
ATTN__V unsigned attn__mask_bits(attn__vmask m) { return (unsigned)ATTN__MM(movemask_ps)(m); }
/* Widens half with integer arithmetic, from 16 bits in each lane. */
ATTN__V ATTN__FN(ints) ATTN__FN(half_bits)(ATTN__FN(ints) h)
{
    const ATTN__FN(ints) size = ATTN__MM(srli_epi32)(ATTN__MM(slli_epi32)(h, 17), 4);
    const ATTN__FN(ints) sign = ATTN__MM(slli_epi32)(ATTN__MM(srli_epi32)(h, 15), 31);
    const ATTN__FN(ints) bias = ATTN__MM(set1_epi32)(112 << 23);
    const ATTN__FN(ints) quiet = ATTN__MM(set1_epi32)(1 << 22);
    /* exponent 0: a multiple of 2^-24; exponent 31: Inf, or a NaN, which is quietened */
    const ATTN__FN(ints) tiny = ATTN__MM(cmpgt_epi32)(ATTN__MM(set1_epi32)(1 << 23), size);
    const ATTN__FN(ints) large = ATTN__MM(cmpgt_epi32)(size, ATTN__MM(set1_epi32)((31 << 23) - 1));
    const ATTN__FN(ints) nan = ATTN__MM(cmpgt_epi32)(size, ATTN__MM(set1_epi32)(31 << 23));
    const attn__vec units = ATTN__MM(mul_ps)(ATTN__MM(cvtepi32_ps)(ATTN__MM(srli_epi32)(size, 13)),
                                             attn__vset(5.9604644775390625e-8f));
    ATTN__FN(ints) bits = ATTN__MM(add_epi32)(size, bias);
    bits = ATTN__MM(add_epi32)(bits, ATTN__SI(and)(large, bias));
    bits = ATTN__SI(or)(bits, ATTN__SI(and)(nan, quiet));
    bits = ATTN__SI(or)(ATTN__SI(and)(tiny, ATTN__I(units)), ATTN__SI(andnot)(tiny, bits));
    return ATTN__SI(or)(bits, sign);
}
#endif
#if ATTN__ISA != ATTN__ISA_SSE2           /* SSE2 has no fma, and narrows through memory */
ATTN__V attn__vec attn__vfma(attn__vec a, attn__vec b, attn__vec c)
{
    return ATTN__MM(fmadd_ps)(a, b, c);
}
/* O: ordered, so false with a NaN. Q: quiet, so a NaN raises no exception flag. */
ATTN__V attn__vmask attn__vless(attn__vec a, attn__vec b)
{
    return ATTN__COMPARE(a, b, _CMP_LT_OQ);
}
ATTN__V attn__vmask attn__is_nan(attn__vec a) { return ATTN__COMPARE(a, a, _CMP_UNORD_Q); }
/* Rounds to bfloat16, to nearest even, in the low 16 bits of each lane. */
ATTN__V ATTN__FN(ints) ATTN__FN(bf16_bits)(attn__vec a)
{
    const ATTN__FN(ints) u = ATTN__I(a), upper = ATTN__MM(srli_epi32)(u, 16);
    const ATTN__FN(ints) odd = ATTN__SI(and)(upper, ATTN__MM(set1_epi32)(1));
    const ATTN__FN(ints) half = ATTN__MM(add_epi32)(odd, ATTN__MM(set1_epi32)(0x7fff));
    const ATTN__FN(ints) round = ATTN__MM(srli_epi32)(ATTN__MM(add_epi32)(u, half), 16);
    const ATTN__FN(ints) quiet = ATTN__SI(or)(upper, ATTN__MM(set1_epi32)(0x40));
    return ATTN__I(attn__choose(attn__is_nan(a), ATTN__F(quiet), ATTN__F(round)));
}
#endif
/* Sums and maxima: first lanes 8 apart if there are 16, then lanes 4 apart (ATTN__FOUR); movehl
   moves the upper two of four lanes down. */
#define ATTN__FOURS(op, a) _mm_##op(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1))
ATTN__V float attn__sum_lanes(attn__vec a)
{
    const __m128 x = ATTN__FOUR(add_ps, a);
    const __m128 y = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
}
ATTN__V float attn__max_lane(attn__vec a)
{
    const __m128 x = ATTN__FOUR(max_ps, a);
    const __m128 y = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
}
ATTN__V attn__wide attn__wide_load(const double *p) { return ATTN__MM(loadu_pd)(p); }
ATTN__V void attn__wide_store(double *p, attn__wide a) { ATTN__MM(storeu_pd)(p, a); }
ATTN__V attn__wide attn__wide_add(attn__wide s, const float *p, const int squares)
{
    const attn__wide a = ATTN__MM(cvtps_pd)(ATTN__LOAD_HALF(p));
    return ATTN__MM(add_pd)(s, squares ? ATTN__MM(mul_pd)(a, a) : a);
}
ATTN__V double attn__wide_root(double x)
{
    const __m128d a = _mm_set_sd(x);
    return _mm_cvtsd_f64(_mm_sqrt_sd(a, a));
}
#define ATTN__ZIP_LOW(a, b) ATTN__MM(unpacklo_ps)(a, b)
#define ATTN__ZIP_HIGH(a, b) ATTN__MM(unpackhi_ps)(a, b)
#define ATTN__LOWER(a, b) ATTN__MM(shuffle_ps)(a, b, 0x44)
#define ATTN__UPPER(a, b) ATTN__MM(shuffle_ps)(a, b, 0xee)

#elif ATTN__ISA == ATTN__ISA_NEON
/* ---- NEON of 64-bit ARM ---------------------------------------------------------------------- */
/* 32 registers of 4 lanes: 12 rows x 2 vectors leave 8 of them free. */
#define ATTN__FN(name) attn__##name##_neon
#define ATTN__TARGET
#define ATTN__LANES 4
#define ATTN__ROWS 12
#define ATTN__TRANSPOSED 4
#define ATTN__HAS_HALF 1
#define ATTN__HAS_BF16 1
typedef float32x4_t attn__vec;
typedef uint32x4_t attn__vmask;                      /* all bits of a lane are set or none */
ATTN__V attn__vec attn__vset(float x) { return vdupq_n_f32(x); }
ATTN__V attn__vec attn__vload(const float *p) { return vld1q_f32(p); }
ATTN__V void attn__vstore(float *p, attn__vec a) { vst1q_f32(p, a); }
ATTN__V attn__vec attn__vadd(attn__vec a, attn__vec b) { return vaddq_f32(a, b); }
ATTN__V attn__vec attn__vsub(attn__vec a, attn__vec b) { return vsubq_f32(a, b); }
ATTN__V attn__vec attn__vmul(attn__vec a, attn__vec b) { return vmulq_f32(a, b); }
ATTN__V attn__vec attn__vdiv(attn__vec a, attn__vec b) { return vdivq_f32(a, b); }
ATTN__V attn__vec attn__vmax(attn__vec a, attn__vec b) { return vmaxq_f32(a, b); }
/* This instruction takes the addend first. */
ATTN__V attn__vec attn__vfma(attn__vec a, attn__vec b, attn__vec c) { return vfmaq_f32(c, a, b); }
ATTN__V attn__vec attn__vpow2(attn__vec t)
{
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(t), 23));
}
ATTN__V attn__vmask attn__vless(attn__vec a, attn__vec b) { return vcltq_f32(a, b); }
ATTN__V attn__vmask attn__same_bits(attn__vec a, attn__vec b)
{
    return vceqq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b));
}
/* NEON has no "not equal". */
ATTN__V attn__vmask attn__is_nan(attn__vec a) { return vmvnq_u32(vceqq_f32(a, a)); }
ATTN__V attn__vec attn__choose(attn__vmask m, attn__vec a, attn__vec b)
{
    return vbslq_f32(m, a, b);
}
ATTN__V attn__vmask attn__or_mask(attn__vmask a, attn__vmask b) { return vorrq_u32(a, b); }
ATTN__V attn__vmask attn__zero_bytes(const unsigned char *p)
{
    unsigned char eight[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };     /* it loads 8, 4 may exist */
    memcpy(eight, p, 4);
    return vceqq_u32(vmovl_u16(vget_low_u16(vmovl_u8(vld1_u8(eight)))), vdupq_n_u32(0));
}
ATTN__V attn__vec attn__vwiden(const unsigned short *p, const int how)
{
    const uint16x4_t x = vld1_u16(p);
    if (how == ATTN_F16) return vcvt_f32_f16(vreinterpret_f16_u16(x));
    return vreinterpretq_f32_u32(vshll_n_u16(x, 16));
}
ATTN__V void attn__vnarrow(unsigned short *p, attn__vec a, const int how)
{
    const uint32x4_t u = vreinterpretq_u32_f32(a), upper = vshrq_n_u32(u, 16);
    const uint32x4_t half = vaddq_u32(vandq_u32(upper, vdupq_n_u32(1)), vdupq_n_u32(0x7fff));
    const uint32x4_t quiet = vorrq_u32(upper, vdupq_n_u32(0x40));
    const uint32x4_t x = vbslq_u32(attn__is_nan(a), quiet, vshrq_n_u32(vaddq_u32(u, half), 16));
    if (how == ATTN_F16) vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
    else vst1_u16(p, vmovn_u32(x));
}
/* NEON has no movemask. */
ATTN__V unsigned attn__mask_bits(attn__vmask m)
{
    static const unsigned bit[4] = { 1, 2, 4, 8 };
    return vaddvq_u32(vandq_u32(m, vld1q_u32(bit)));
}
/* The tree in its order, +2 and then +1; vaddvq_f32 adds neighbours first. */
ATTN__V float attn__sum_lanes(attn__vec a)
{
    const float32x2_t x = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(x, 0) + vget_lane_f32(x, 1);
}
ATTN__V float attn__max_lane(attn__vec a) { return vmaxvq_f32(a); }
typedef float64x2_t attn__wide;
ATTN__V attn__wide attn__wide_load(const double *p) { return vld1q_f64(p); }
ATTN__V void attn__wide_store(double *p, attn__wide a) { vst1q_f64(p, a); }
ATTN__V attn__wide attn__wide_add(attn__wide s, const float *p, const int squares)
{
    const float64x2_t a = vcvt_f64_f32(vld1_f32(p));
    return vaddq_f64(s, squares ? vmulq_f64(a, a) : a);
}
ATTN__V double attn__wide_root(double x) { return vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0); }
ATTN__V attn__vec attn__vbytes(const signed char *p)
{
    int four;
    memcpy(&four, p, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four))))));
}
ATTN__V void attn__store_bytes(signed char *p, attn__vec a)
{
    const int16x4_t x = vmovn_s32(vcvtq_s32_f32(a));
    const int four = vget_lane_s32(vreinterpret_s32_s8(vmovn_s16(vcombine_s16(x, x))), 0);
    memcpy(p, &four, 4);
}
typedef int32x4_t attn__sums;
ATTN__V attn__sums attn__sums_of(int x) { return vdupq_n_s32(x); }
ATTN__V attn__vec attn__sums_floats(attn__sums s) { return vcvtq_f32_s32(s); }
#define ATTN__DOT_BIAS 0
#ifndef __ARM_FEATURE_DOTPROD
/* A sum of two products is at most 2 * 127 * 127: 16 bits. */
ATTN__V attn__sums attn__vdot_old(attn__sums s, const signed char *k, const signed char *q)
{
    const int8x16_t x = vld1q_s8(k);
    int8x16_t y;
    int four;
    memcpy(&four, q, 4);
    y = vreinterpretq_s8_s32(vdupq_n_s32(four));
    return vpadalq_s16(s, vpaddq_s16(vmull_s8(vget_low_s8(x), vget_low_s8(y)),
                                     vmull_high_s8(x, y)));
}
#endif
ATTN__V attn__sums attn__vdot(attn__sums s, const signed char *k, const signed char *q)
{
#if defined(__ARM_FEATURE_DOTPROD) || defined(ATTN__NEON_ASKS)
    int four;
    int8x8_t y;
    memcpy(&four, q, 4);
    y = vreinterpret_s8_s32(vset_lane_s32(four, vdup_n_s32(0), 0));
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_lane_s32(s, vld1q_s8(k), y, 0);
#else
    /* sdot %0.4s, %1.16b, %2.4b[0] as a number: for its name, compilers and assemblers need flags
       that exclude older processors. %0 is v0 .. v31, and .Lattn_v31 is 31. */
    __asm__(".ifndef .Lattn_v31\n\t.irp i,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,"
            "22,23,24,25,26,27,28,29,30,31\n\t.equ .Lattn_v\\i,\\i\n\t.endr\n\t.endif\n\t"
            ".inst 0x4f80e000 + .Lattn_%0 + (.Lattn_%1 << 5) + (.Lattn_%2 << 16)"
            : "+w"(s) : "w"(vld1q_s8(k)), "w"(y));
    return s;
#endif
#else
    return attn__vdot_old(s, k, q);
#endif
}
#ifdef ATTN__NEON_ASKS
#define ATTN__DOT_OLD (!(attn__cpu() >> ATTN__CPU_SDOT & 1u))
#endif
#define ATTN__ZIP_LOW(a, b) vzip1q_f32(a, b)
#define ATTN__ZIP_HIGH(a, b) vzip2q_f32(a, b)
#define ATTN__LOWER(a, b) vcombine_f32(vget_low_f32(a), vget_low_f32(b))
#define ATTN__UPPER(a, b) vcombine_f32(vget_high_f32(a), vget_high_f32(b))

#else
/* WebAssembly and RISC-V share clang's vector types, except for a few operations. */
#if ATTN__ISA == ATTN__ISA_RVV
/* ---- RISC-V V -------------------------------------------------------------------------------- */
/* The length of these vectors is known only at run time, and their C types have no fixed size. So
   the kernels use clang's vectors of 8 floats: two registers of 128 bits, the minimum, or part of
   longer ones. 6 rows x 2 vectors take 24 of 32 registers, b0 and b1 take 4; a scalar factor takes
   none. */
#define ATTN__FN(name) attn__##name##_rvv
#ifdef __riscv_v
#define ATTN__TARGET
#else
#define ATTN__TARGET ATTN__ATTR("arch=+v")
#endif
#define ATTN__LANES 8
#define ATTN__HAS_BF16 1
#else
/* ---- WebAssembly simd128 --------------------------------------------------------------------- */
/* Two blocks in one. ATTN__ISA 6 has no fma with a defined result: the bits of SSE2. 8 has the
   multiply-add of relaxed SIMD and is used if that rounds once: the bits of all backends with
   fma. */
#if ATTN__ISA == ATTN__ISA_WASM
#define ATTN__FN(name) attn__##name##_wasm
#else
#define ATTN__FN(name) attn__##name##_wasm_fma
#endif
#define ATTN__TARGET
#define ATTN__LANES 4
#define ATTN__HAS_BF16 0
#endif
#define ATTN__ROWS 6
#define ATTN__TRANSPOSED 4
#define ATTN__HAS_HALF 0
#define ATTN__VECTOR(n) __attribute__((ext_vector_type(n)))
typedef float attn__vec ATTN__VECTOR(ATTN__LANES);
typedef int attn__vmask ATTN__VECTOR(ATTN__LANES);   /* all bits of a lane are set or none */
typedef unsigned ATTN__FN(words) ATTN__VECTOR(ATTN__LANES);
typedef float ATTN__FN(four) ATTN__VECTOR(4);
typedef float ATTN__FN(two) ATTN__VECTOR(2);
/* The same types in memory, with the alignment of their elements. */
#define ATTN__IN_MEMORY(type) \
    __attribute__((ext_vector_type(ATTN__LANES), aligned(sizeof(type)), may_alias))
typedef float ATTN__FN(floats_at) ATTN__IN_MEMORY(float);
typedef unsigned short ATTN__FN(halves_at) ATTN__IN_MEMORY(short);
typedef unsigned char ATTN__FN(bytes_at) ATTN__IN_MEMORY(char);
typedef signed char ATTN__FN(chars_at) ATTN__IN_MEMORY(char);
ATTN__V attn__vec attn__vset(float x) { return (attn__vec)x; }
ATTN__V attn__vec attn__vload(const float *p)
{
    return *(const ATTN__FN(floats_at) *)(const void *)p;
}
ATTN__V void attn__vstore(float *p, attn__vec a) { *(ATTN__FN(floats_at) *)(void *)p = a; }
ATTN__V attn__vec attn__vadd(attn__vec a, attn__vec b) { return a + b; }
ATTN__V attn__vec attn__vsub(attn__vec a, attn__vec b) { return a - b; }
ATTN__V attn__vec attn__vmul(attn__vec a, attn__vec b) { return a * b; }
ATTN__V attn__vec attn__vdiv(attn__vec a, attn__vec b) { return a / b; }
/* A cast from vector to vector of the same size keeps the bits. */
ATTN__V attn__vec attn__vpow2(attn__vec t) { return (attn__vec)((ATTN__FN(words))t << 23); }
ATTN__V attn__vmask attn__vless(attn__vec a, attn__vec b) { return a < b; }
ATTN__V attn__vmask attn__same_bits(attn__vec a, attn__vec b)
{
    return (attn__vmask)a == (attn__vmask)b;
}
ATTN__V attn__vmask attn__is_nan(attn__vec a) { return a != a; }
ATTN__V ATTN__FN(words) ATTN__FN(pick)(attn__vmask m, ATTN__FN(words) a, ATTN__FN(words) b)
{
    return ((ATTN__FN(words))m & a) | (~(ATTN__FN(words))m & b);
}
ATTN__V attn__vec attn__choose(attn__vmask m, attn__vec a, attn__vec b)
{
    return (attn__vec)ATTN__FN(pick)(m, (ATTN__FN(words))a, (ATTN__FN(words))b);
}
ATTN__V attn__vmask attn__or_mask(attn__vmask a, attn__vmask b) { return a | b; }
ATTN__V attn__vmask attn__zero_bytes(const unsigned char *p)
{
    const ATTN__FN(bytes_at) x = *(const ATTN__FN(bytes_at) *)(const void *)p;
    return __builtin_convertvector(x, attn__vmask) == 0;
}
/* Widens half with integer arithmetic, from 16 bits in each lane. */
ATTN__V ATTN__FN(words) ATTN__FN(half_bits)(ATTN__FN(words) h)
{
    const ATTN__FN(words) size = h << 17 >> 4, sign = h >> 15 << 31;
    const ATTN__FN(words) bias = (ATTN__FN(words))(112u << 23), quiet = (ATTN__FN(words))(1u << 22);
    /* exponent 0: a multiple of 2^-24; exponent 31: Inf, or a NaN, which is quietened */
    const attn__vec units = __builtin_convertvector(size >> 13, attn__vec)
                          * attn__vset(5.9604644775390625e-8f);
    const attn__vmask tiny = size < 1u << 23, large = size >= 31u << 23, nan = size > 31u << 23;
    ATTN__FN(words) bits = size + bias + ((ATTN__FN(words))large & bias);
    bits |= (ATTN__FN(words))nan & quiet;
    return ATTN__FN(pick)(tiny, (ATTN__FN(words))units, bits) | sign;
}
ATTN__V attn__vec attn__vwiden(const unsigned short *p, const int how)
{
    const ATTN__FN(halves_at) h = *(const ATTN__FN(halves_at) *)(const void *)p;
    const ATTN__FN(words) x = __builtin_convertvector(h, ATTN__FN(words));
    return (attn__vec)(how == ATTN_BF16 ? x << 16 : ATTN__FN(half_bits)(x));
}
ATTN__V attn__vec attn__vbytes(const signed char *p)
{
    return __builtin_convertvector(*(const ATTN__FN(chars_at) *)(const void *)p, attn__vec);
}
/* Added to 1.5 * 2^23, an integer is in the low bits. */
ATTN__V void attn__store_bytes(signed char *p, attn__vec a)
{
    const ATTN__FN(words) x = (ATTN__FN(words))(a + attn__vset(12582912.0f));
    *(ATTN__FN(bytes_at) *)(void *)p = __builtin_convertvector(x, ATTN__FN(bytes_at));
}
typedef attn__vmask attn__sums;
ATTN__V attn__sums attn__sums_of(int x) { return (attn__sums)x; }
ATTN__V attn__vec attn__sums_floats(attn__sums s) { return __builtin_convertvector(s, attn__vec); }
#define ATTN__DOT_BIAS 0
ATTN__V attn__sums attn__vdot(attn__sums s, const signed char *k, const signed char *q)
{
#if ATTN__ISA == ATTN__ISA_RVV
    ATTN__FN(words) x;
    memcpy(&x, k, sizeof x);
    s += ((attn__sums)(x << 24) >> 24) * q[0] + ((attn__sums)(x << 16) >> 24) * q[1];
    return s + ((attn__sums)(x << 8) >> 24) * q[2] + ((attn__sums)x >> 24) * q[3];
#else
    /* even and odd bytes as 16 bits, whose products are added in pairs */
    const v128_t x = wasm_v128_load(k), y = wasm_v128_load32_splat(q);
    const v128_t even = wasm_i32x4_dot_i16x8(wasm_i16x8_shr(wasm_i16x8_shl(x, 8), 8),
                                             wasm_i16x8_shr(wasm_i16x8_shl(y, 8), 8));
    const v128_t odd = wasm_i32x4_dot_i16x8(wasm_i16x8_shr(x, 8), wasm_i16x8_shr(y, 8));
    return s + (attn__sums)even + (attn__sums)odd;
#endif
}
ATTN__V float attn__sum_lanes(attn__vec a)
{
#if ATTN__LANES == 8
    const ATTN__FN(four) x = a.lo + a.hi;
#else
    const ATTN__FN(four) x = a;
#endif
    const ATTN__FN(two) y = x.lo + x.hi;
    return y[0] + y[1];
}
typedef double attn__wide ATTN__VECTOR(ATTN__LANES / 2);
typedef float ATTN__FN(half) ATTN__VECTOR(ATTN__LANES / 2);
/* memcpy, because these types have more than the alignment of their elements. */
ATTN__V attn__wide attn__wide_load(const double *p)
{
    attn__wide a;
    memcpy(&a, p, sizeof a);
    return a;
}
ATTN__V void attn__wide_store(double *p, attn__wide a) { memcpy(p, &a, sizeof a); }
ATTN__V attn__wide attn__wide_add(attn__wide s, const float *p, const int squares)
{
    ATTN__FN(half) x;
    attn__wide a;
    memcpy(&x, p, sizeof x);
    a = __builtin_convertvector(x, attn__wide);
    return s + (squares ? a * a : a);
}
ATTN__V double attn__wide_root(double x)
{
#if ATTN__ISA == ATTN__ISA_RVV
    __asm__("fsqrt.d %0, %0" : "+f"(x));
    return x;
#else
    return wasm_f64x2_extract_lane(wasm_f64x2_sqrt(wasm_f64x2_splat(x)), 0);
#endif
}
#if ATTN__ISA == ATTN__ISA_RVV
ATTN__V attn__vec attn__vmax(attn__vec a, attn__vec b) { return __builtin_elementwise_max(a, b); }
ATTN__V float attn__max_lane(attn__vec a) { return __builtin_reduce_max(a); }
ATTN__V attn__vec attn__vfma(attn__vec a, attn__vec b, attn__vec c)
{
    return __builtin_elementwise_fma(a, b, c);
}
/* Only bfloat16: narrow_how never calls this for half without an instruction. */
ATTN__V void attn__vnarrow(unsigned short *p, attn__vec a, const int how)
{
    const ATTN__FN(words) u = (ATTN__FN(words))a, upper = u >> 16;
    const ATTN__FN(words) x = ATTN__FN(pick)(attn__is_nan(a), upper | 0x40u,
                                             (u + (0x7fffu + (upper & 1u))) >> 16);
    (void)how;
    *(ATTN__FN(halves_at) *)(void *)p = __builtin_convertvector(x, ATTN__FN(halves_at));
}
#ifdef __cplusplus
typedef bool ATTN__FN(truths) ATTN__VECTOR(8);       /* one bit per lane */
#else
typedef _Bool ATTN__FN(truths) ATTN__VECTOR(8);
#endif
ATTN__V unsigned attn__mask_bits(attn__vmask m)
{
    const ATTN__FN(truths) b = __builtin_convertvector(m, ATTN__FN(truths));
    unsigned char bits;
    memcpy(&bits, &b, 1);
    return bits;
}
ATTN__V void attn__transpose(attn__vec *x, const void *from, ptrdiff_t row, int last)
{
    int c, i;
    for (c = 0; c < 4; c++)
        for (i = 0; i < 8; i++)
            x[c][i] = ((const float *)attn__nth(from, attn__min(i, last), row))[c];
}
#else
/* One instruction on every machine; max, which keeps NaN, takes several on x86. */
ATTN__V attn__vec attn__vmax(attn__vec a, attn__vec b)
{
    return (attn__vec)wasm_f32x4_pmax((v128_t)a, (v128_t)b);
}
ATTN__V float attn__max_lane(attn__vec a)
{
    a = attn__vmax(a, a.zwxy);
    return attn__vmax(a, a.yxwz)[0];
}
ATTN__V attn__vec attn__vfma(attn__vec a, attn__vec b, attn__vec c)
{
#if ATTN__ISA == ATTN__ISA_WASM_FMA
    return (attn__vec)attn__wasm_madd((v128_t)a, (v128_t)b, (v128_t)c);
#else
    /* Always two roundings: with relaxed SIMD a compiler may fuse them. */
#pragma clang fp contract(off)
    return a * b + c;
#endif
}
ATTN__V unsigned attn__mask_bits(attn__vmask m) { return wasm_i32x4_bitmask((v128_t)m); }
/* In a shuffle, indices from 4 on select lanes of the second vector. */
#define ATTN__ZIP_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define ATTN__ZIP_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define ATTN__LOWER(a, b) __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define ATTN__UPPER(a, b) __builtin_shufflevector(a, b, 2, 3, 6, 7)
#endif
#undef ATTN__VECTOR
#undef ATTN__IN_MEMORY
#endif

/* ---- operations shared by several blocks ----------------------------------------------------- */
#ifndef ATTN__FMA_IN_PLACE
#define ATTN__FMA_IN_PLACE(c, a, b) c = attn__vfma(a, b, c)
#endif
#ifndef ATTN__IN_REGISTER
#define ATTN__IN_REGISTER(x) (void)0
#endif
#if ATTN__ISA > ATTN__ISA_AVX2            /* SSE2 and AVX2 define it as one instruction */
ATTN__V attn__vec attn__zero_where(attn__vmask m, attn__vec a)
{
    return attn__choose(m, attn__vset(0.0f), a);
}
#endif
/* Through memory, because it is stored once and read often. Blocks of 8 and 16 lanes, and NEON,
   define it themselves. */
#if ATTN__LANES == 4 && ATTN__ISA != ATTN__ISA_NEON
ATTN__V void attn__vnarrow(unsigned short *p, attn__vec a, const int how)
{
    float part[ATTN__LANES];
    attn__vstore(part, a);
    attn__narrow_scalar(p, part, ATTN__LANES, (attn_storage)how);
}
#endif
#ifndef ATTN__DOT_BIAS
ATTN__V void attn__store_bytes(signed char *p, attn__vec a)
{
    float part[ATTN__LANES];
    int i;
    attn__vstore(part, a);
    for (i = 0; i < ATTN__LANES; i++) p[i] = (signed char)part[i];
}
ATTN__V attn__vec attn__vbytes(const signed char *p)
{
    float part[ATTN__LANES];
    int i;
    for (i = 0; i < ATTN__LANES; i++) part[i] = (float)p[i];
    return attn__vload(part);
}
typedef struct attn__sums { int lane[ATTN__LANES]; } attn__sums;
#define ATTN__DOT_BIAS 0
ATTN__V attn__sums attn__sums_of(int x)
{
    attn__sums s;
    int i;
    for (i = 0; i < ATTN__LANES; i++) s.lane[i] = x;
    return s;
}
ATTN__V attn__sums attn__vdot(attn__sums s, const signed char *k, const signed char *q)
{
    int i;
    for (i = 0; i < ATTN__LANES; i++)
        s.lane[i] += k[4 * i] * q[0] + k[4 * i + 1] * q[1] + k[4 * i + 2] * q[2] +
                     k[4 * i + 3] * q[3];
    return s;
}
ATTN__V attn__vec attn__sums_floats(attn__sums s)
{
    float part[ATTN__LANES];
    int i;
    for (i = 0; i < ATTN__LANES; i++) part[i] = (float)s.lane[i];
    return attn__vload(part);
}
#endif
/* A loop for each, because gcc moves sums between registers where two ways meet. */
#ifdef ATTN__DOT_OLD
#define ATTN__DOT_STEPS \
    if (ATTN__DOT_OLD) ATTN__STEPS(ATTN__STEP_OLD) \
    else ATTN__STEPS(ATTN__STEP_NEW)
#else
#define ATTN__DOT_STEPS ATTN__STEPS(ATTN__STEP_NEW)
#endif
#ifndef ATTN__DOT_TARGET
#define ATTN__DOT_TARGET ATTN__TARGET
#define ATTN__DOT_ELSE(kernel, arguments)
#endif
#ifdef ATTN__ZIP_LOW
/* In each four lanes ATTN__ZIP_LOW(a, b) is a0 b0 a1 b1, ATTN__ZIP_HIGH a2 b2 a3 b3, ATTN__LOWER a0
   a1 b0 b1, ATTN__UPPER a2 a3 b2 b3. (Zips alone would suffice, with 2 to 3 % more instructions for
   one row over plain keys.) */
#if ATTN__LANES == 4
ATTN__V attn__vec ATTN__FN(rows_at)(const void *p, int i, ptrdiff_t row, int last)
{
    return attn__vload((const float *)attn__nth(p, attn__min(i, last), row));
}
#endif
/* y[c]: component c of rows i .. i + 3, and of the rows that rows_at adds, in each four lanes. */
ATTN__V void ATTN__FN(transpose4)(attn__vec *y, const void *p, int i, ptrdiff_t row, int last)
{
    const attn__vec r0 = ATTN__FN(rows_at)(p, i, row, last);
    const attn__vec r1 = ATTN__FN(rows_at)(p, i + 1, row, last);
    const attn__vec r2 = ATTN__FN(rows_at)(p, i + 2, row, last);
    const attn__vec r3 = ATTN__FN(rows_at)(p, i + 3, row, last);
    const attn__vec t0 = ATTN__ZIP_LOW(r0, r1), t1 = ATTN__ZIP_HIGH(r0, r1);
    const attn__vec t2 = ATTN__ZIP_LOW(r2, r3), t3 = ATTN__ZIP_HIGH(r2, r3);
    y[0] = ATTN__LOWER(t0, t2);
    y[1] = ATTN__UPPER(t0, t2);
    y[2] = ATTN__LOWER(t1, t3);
    y[3] = ATTN__UPPER(t1, t3);
}
ATTN__V void attn__transpose(attn__vec *x, const void *from, ptrdiff_t row, int last)
{
#if ATTN__ISA != ATTN__ISA_AVX512
    ATTN__FN(transpose4)(x, from, 0, row, last);
#else
    /* Quarters of y[c]: component c of keys 0..3, component c + 4 of these, then the same of keys
       4..7; z has keys 8..15. So quarters 0 and 2 of both are component c, quarters 1 and 3 are c +
       4. */
    attn__vec y[4], z[4];
    ATTN__FN(transpose4)(y, from, 0, row, last);
    ATTN__FN(transpose4)(z, from, 8, row, last);
    x[0] = _mm512_shuffle_f32x4(y[0], z[0], 0x88);
    x[1] = _mm512_shuffle_f32x4(y[1], z[1], 0x88);
    x[2] = _mm512_shuffle_f32x4(y[2], z[2], 0x88);
    x[3] = _mm512_shuffle_f32x4(y[3], z[3], 0x88);
    x[4] = _mm512_shuffle_f32x4(y[0], z[0], 0xdd);
    x[5] = _mm512_shuffle_f32x4(y[1], z[1], 0xdd);
    x[6] = _mm512_shuffle_f32x4(y[2], z[2], 0xdd);
    x[7] = _mm512_shuffle_f32x4(y[3], z[3], 0xdd);
#endif
}
#endif
#ifndef ATTN__LOADS_SOME
/* Loads here cannot skip lanes, and p[n] may not exist: so through memory. */
typedef int attn__vpart;
ATTN__V attn__vpart attn__first(int n) { return n; }
ATTN__V attn__vec attn__load_some(const float *p, attn__vpart n)
{
    float part[ATTN__LANES];
    int i;
    if (n >= ATTN__LANES) return attn__vload(p);
    attn__vstore(part, attn__vset(0.0f));
    for (i = 0; i < n; i++) part[i] = p[i];
    return attn__vload(part);
}
#endif
/* Returns the first n floats at p, then zeros; reads nothing after them. */
ATTN__V attn__vec attn__load_part(const float *p, int n)
{
    return attn__load_some(p, attn__first(n));
}

/* =================================================================================================
 * 12  KERNELS, written once
 *
 * The kernels do the operations of section 3 in the same order, several at once. Lanes hold
 * different keys or different output columns, never parts of one sum, so their number cannot change
 * a bit. A `const int` parameter is a constant after inlining: code that it disables costs nothing.
 * No kernel names an instruction set. A few test the number of lanes (at compile time), because a
 * panel of 16 is one, two or four vectors, and in two places because 8 lanes are faster that way.
 * ATTN__KERNELS in section 2 lists and describes all kernels.
 *
 * Parameters, which each block of section 11 defines, and their valid combinations:
 *     ATTN__LANES  ATTN__ROWS  ATTN__TRANSPOSED  vector registers  blocks
 *     4            6           4                 16                SSE2, WebAssembly
 *     4            12          4                 32                NEON
 *     8            6           4                 16                AVX2, RISC-V V (32, in pairs)
 *     16           12          8                 32                AVX-512
 * The largest tile needs 2 * ATTN__ROWS + 3 registers. ATTN__HAS_BF16 1 compiles the products that
 * read 16 bits, for which attn__vwiden takes at most two instructions with ATTN_BF16, and with
 * ATTN_F16 if ATTN__HAS_HALF is 1 at run time. ATTN__HAS_HALF 0: half goes through integers.
 *
 * Tiles, by their width in vectors. score_tile reads rows of K, all others panels or rows of b:
 *     width     rows                    function    for
 *     8         1                       tile        one row
 *     4         1, 2                    tile        one row after 8; two rows
 *     2         ATTN__FN(heights)       tile        more rows; one or two rows after 4
 *     1         12                      tile        12 rows, 16 lanes: a single last panel
 *     1 panel   1                       tile, part  columns that exist in part; lists of steps
 *     1, 2, 4   1 .. 4                  score_tile  scores: floats, up to 16 keys of a head, or a
 *                                                   vector of keys of two heads
 * ============================================================================================== */

/* Hides from the optimiser how x was computed. Otherwise clang adds a stride for each row, and gcc
   keeps more strides in registers than there are. With it 6 to 40 rows take 0.91 to 1 of the
   time. */
#if defined(__GNUC__) || defined(__clang__)
#define ATTN__HIDE_ORIGIN(x) __asm__("" : "+r"(x))
#else
#define ATTN__HIDE_ORIGIN(x) (void)0
#endif

/* Unrolled lists, because compilers keep arrays with loops over them in memory: do(i) for eight
   items, for each component that attn__transpose takes, and for n items: 1, 2, 4, or with 8 lanes
   8. */
#define ATTN__EIGHT(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7)
#if ATTN__TRANSPOSED > 4
#define ATTN__COMPONENTS(do) ATTN__EIGHT(do)
#else
#define ATTN__COMPONENTS(do) do(0) do(1) do(2) do(3)
#endif
#define ATTN__REPEAT(n, do) \
    do(0) \
    if ((n) > 1) { do(1) } \
    if ((n) > 2) { do(2) do(3) } \
    if (ATTN__LANES == 8 && (n) > 4) { do(4) do(5) do(6) do(7) }

/* ---- elementary functions: attn__exp and attn__tanh of section 3, operation by operation ----- */
ATTN__V attn__vec ATTN__FN(vexp)(attn__vec x)        /* x <= 0, -inf or NaN */
{
    /* n: the power of two in exp(x); t holds n + 127 in its low bits; r: the remainder of x. An fma
       is the last to read x, n and r, so that it may overwrite them: softmax takes 0.96 of the
       time. */
    const attn__vmask tiny = attn__vless(x, attn__vset(ATTN__EXP_MIN));
    const attn__vec t = attn__vfma(x, attn__vset(ATTN__LOG2E), attn__vset(ATTN__MAGIC));
    const attn__vec n = attn__vsub(t, attn__vset(ATTN__MAGIC));
    const attn__vec two_n = attn__vpow2(t);
    const attn__vec r = attn__vfma(n, attn__vset(-ATTN__LN2_HI), x), r2 = attn__vmul(r, r);
    const attn__vec w = attn__vmul(attn__vfma(n, attn__vset(-ATTN__LN2_LO), r), two_n);
    /* The polynomial in pairs of terms: its latency limits the callers. */
    const attn__vec y34 = attn__vfma(attn__vset(ATTN__E4), r, attn__vset(ATTN__E3));
    const attn__vec y56 = attn__vfma(attn__vset(ATTN__E6), r, attn__vset(ATTN__E5));
    const attn__vec y36 = attn__vfma(y56, r2, y34);
    const attn__vec y12 = attn__vfma(attn__vset(ATTN__E2), r, attn__vset(ATTN__E1));
    return attn__zero_where(tiny, attn__vfma(attn__vfma(y36, r2, y12), w, two_n));
}

ATTN__V attn__vec ATTN__FN(vtanh)(attn__vec x)
{
    const attn__vec one = attn__vset(1.0f), zero = attn__vset(0.0f);
    const attn__vec ax = attn__vmax(x, attn__vsub(zero, x)), x2 = attn__vmul(x, x);
    const attn__vec e = ATTN__FN(vexp)(attn__vmul(ax, attn__vset(-2.0f)));
    /* Both formulas are computed, exp far from 0 and the polynomial near 0, and each lane
       selects. */
    attn__vec outer = attn__vdiv(attn__vsub(one, e), attn__vadd(one, e));
    attn__vec inner = attn__vset(ATTN__T5);
    outer = attn__choose(attn__vless(x, zero), attn__vsub(zero, outer), outer);
    inner = attn__vfma(inner, x2, attn__vset(ATTN__T4));
    inner = attn__vfma(inner, x2, attn__vset(ATTN__T3));
    inner = attn__vfma(inner, x2, attn__vset(ATTN__T2));
    inner = attn__vfma(inner, x2, attn__vset(ATTN__T1));
    inner = attn__vfma(attn__vmul(inner, x2), x, x);
    return attn__choose(attn__vless(ax, attn__vset(ATTN__TANH_NEAR)), inner, outer);
}

#ifndef ATTN_NO_LAYERS
ATTN__V attn__vec ATTN__FN(exp_parts)(attn__vec x, attn__vec low, attn__vec *two_n)
{
    const attn__vec t = attn__vfma(x, attn__vset(ATTN__LOG2E), attn__vset(ATTN__MAGIC));
    const attn__vec n = attn__vsub(t, attn__vset(ATTN__MAGIC));
    const attn__vec rest = attn__vfma(n, attn__vset(-ATTN__LN2_HI), x);
    const attn__vec r = attn__vadd(rest, attn__vfma(n, attn__vset(-ATTN__LN2_LO), low));
    const attn__vec r2 = attn__vmul(r, r);
    const attn__vec y12 = attn__vfma(attn__vset(ATTN__E2), r, attn__vset(ATTN__E1));
    const attn__vec y34 = attn__vfma(attn__vset(ATTN__E4), r, attn__vset(ATTN__E3));
    const attn__vec y56 = attn__vfma(attn__vset(ATTN__E6), r, attn__vset(ATTN__E5));
    *two_n = attn__vpow2(t);
    return attn__vmul(attn__vfma(attn__vfma(y56, r2, y34), r2, y12), r);
}

/* Both forms are computed, and each lane selects. */
ATTN__V attn__vec ATTN__FN(gelu)(attn__vec x)
{
    const attn__vec zero = attn__vset(0.0f), one = attn__vset(1.0f);
    const attn__vec t = attn__choose(attn__vless(x, zero), attn__vsub(zero, x), x);
    const attn__vec z = attn__vmul(x, x), half = attn__vmul(z, attn__vset(-0.5f));
    const attn__vec low = attn__vmul(attn__vfma(x, x, attn__vsub(zero, z)), attn__vset(-0.5f));
    const attn__vec w = attn__vdiv(attn__vsub(t, one), attn__vadd(t, attn__vset(2.5f)));
    attn__vec two_n, near_0 = zero, y = zero, s;
    const attn__vec p = ATTN__FN(exp_parts)(half, low, &two_n);
#define ATTN__TERM(c) near_0 = attn__vfma(near_0, z, attn__vset(c));
    ATTN__GELU_P(ATTN__TERM)
#undef ATTN__TERM
#define ATTN__TERM(c) y = attn__vfma(y, w, attn__vset(c));
    ATTN__GELU_G(ATTN__TERM)
#undef ATTN__TERM
    near_0 = attn__vfma(x, attn__vfma(near_0, x, attn__vset(0.5f)), zero);
    s = attn__zero_where(attn__vless(half, attn__vset(ATTN__EXP_MIN)),
                         attn__vmul(attn__vfma(y, p, y), two_n));
    y = attn__vsub(attn__choose(attn__vless(zero, x), x, zero), s);
    return attn__choose(attn__vless(t, one), near_0, y);
}

ATTN__V attn__vec ATTN__FN(sigmoid_times)(attn__vec x, attn__vec v, attn__vec low)
{
    const attn__vmask far_from_0 = attn__vless(v, attn__vset(ATTN__EXP_MIN));
    attn__vec two_n, e, up;
    const attn__vec p = ATTN__FN(exp_parts)(v, low, &two_n);
    e = attn__zero_where(far_from_0, attn__vfma(p, two_n, two_n));
    up = attn__zero_where(far_from_0, attn__vmul(attn__vfma(x, p, x), two_n));
    up = attn__choose(attn__vless(x, attn__vset(0.0f)), up, x);
    return attn__vdiv(up, attn__vadd(attn__vset(1.0f), e));
}

ATTN__V attn__vec ATTN__FN(gelu_tanh)(attn__vec x)
{
    const attn__vec zero = attn__vset(0.0f), most = attn__vset(16.0f);
    const attn__vec A = attn__vset(ATTN__GELU_A), B = attn__vset(ATTN__GELU_B);
    const attn__vec ax = attn__choose(attn__vless(x, zero), attn__vsub(zero, x), x);
    const attn__vec t = attn__choose(attn__vless(most, ax), most, ax), z = attn__vmul(t, t);
    const attn__vec z_low = attn__vfma(t, t, attn__vsub(zero, z)), b = attn__vfma(B, z, zero);
    const attn__vec u = attn__vadd(A, b), over = attn__vsub(u, A), v = attn__vmul(t, u);
    const attn__vec sum_low = attn__vadd(attn__vsub(A, attn__vsub(u, over)), attn__vsub(b, over));
    attn__vec low = attn__vadd(attn__vfma(B, z, attn__vsub(zero, b)),
                               attn__vset(ATTN__GELU_A_LOW));
    low = attn__vfma(attn__vset(ATTN__GELU_B_LOW), z, low);
    low = attn__vadd(sum_low, attn__vfma(B, z_low, low));
    low = attn__vfma(t, low, attn__vfma(t, u, attn__vsub(zero, v)));
    return ATTN__FN(sigmoid_times)(x, attn__vsub(zero, v), attn__vsub(zero, low));
}

ATTN__V attn__vec ATTN__FN(silu)(attn__vec x)
{
    const attn__vec zero = attn__vset(0.0f);
    return ATTN__FN(sigmoid_times)(x, attn__choose(attn__vless(x, zero), x, attn__vsub(zero, x)),
                                   zero);
}
#endif

/* Returns x as outputs store it: +0 for -0, and one NaN. */
ATTN__V attn__vec ATTN__FN(vclean)(attn__vec x)
{
    x = attn__vadd(x, attn__vset(0.0f));
    return attn__choose(attn__is_nan(x), attn__vset(attn__nan()), x);
}

/* from, from + 1, ... as floats: indices of keys, to be compared with limits. */
ATTN__V attn__vec ATTN__FN(vindex)(int from)
{
    static const float count[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    return attn__vadd(attn__vload(count), attn__vset((float)from));
}

/* Stores the first n lanes, and writes nothing else. */
ATTN__V void ATTN__FN(store_part)(float *p, attn__vec a, int n)
{
    float part[ATTN__LANES];
    int i = 0;
    if (n >= ATTN__LANES) { attn__vstore(p, a); return; }
    attn__vstore(part, a);
#define ATTN__PIECE(some) \
    if (n > 0 && n & (some)) { \
        memcpy(p + i, part + i, (some) * sizeof(float)); \
        i += some; \
    }
    if (ATTN__LANES > 8) ATTN__PIECE(8)
    if (ATTN__LANES > 4) ATTN__PIECE(4)
    ATTN__PIECE(2)
    ATTN__PIECE(1)
#undef ATTN__PIECE
}

/* ---- scaling and packing --------------------------------------------------------------------- */
static ATTN__TARGET void ATTN__FN(scale)(float *to, const attn__rowref *row, int rows, int n,
                                         float by)
{
    const attn__vec factor = attn__vset(by);
    int r, i;
    for (r = 0; r < rows; r++, to += n) {
        const float *q = row[r].q;
        /* The rest of a row may be shorter than a vector; nothing after it may be read or
           written. */
        for (i = 0; i + ATTN__LANES <= n; i += ATTN__LANES)
            attn__vstore(to + i, attn__vmul(attn__vload(q + i), factor));
        for (; i < n; i++) to[i] = q[i] * by;
    }
}

/* Copies a vector of keys into lanes of a panel, component by component; lanes after `last` repeat
   that key. */
ATTN__V void ATTN__FN(pack_keys)(float *to, const float *k, ptrdiff_t row, int last, int depth)
{
    attn__vec x[ATTN__TRANSPOSED];
    int c, i;
    for (c = 0; c + ATTN__TRANSPOSED <= depth; c += ATTN__TRANSPOSED, to += ATTN__TRANSPOSED * 16) {
        attn__transpose(x, k + c, row * (ptrdiff_t)sizeof(float), last);
#define ATTN__STORE(i) attn__vstore(to + (i) * 16, x[i]);
        ATTN__COMPONENTS(ATTN__STORE)
#undef ATTN__STORE
    }
    /* Components after the last whole step, one by one, because the row ends there. */
    for (; c < depth; c++, to += 16)
        for (i = 0; i < ATTN__LANES; i++) to[i] = k[attn__min(i, last) * row + c];
}

/* Packs K into panels [key/16][component][16]. The inner loop runs along the components, so only
 * the rows of one vector are read at a time: rows of one head that are a power of two apart share
 * few lines of L1. Prefetching the next rows makes this slower. The last panel is padded with
 * copies of the last key: all lanes are computed, and hidden later. */
static ATTN__TARGET void ATTN__FN(pack_k)(float *panels, const float *k, ptrdiff_t row, int n,
                                          int depth)
{
    const int full = ATTN__LANES - 1;
    int x;
    for (; n > 0; n -= ATTN__PANEL, panels += ATTN__PANEL * (size_t)depth) {
        for (x = 0; x < ATTN__PANEL; x += ATTN__LANES) {
            const int first = attn__min(x, n - 1), last = attn__min(full, n - 1 - first);
            if (last == full) ATTN__FN(pack_keys)(panels + x, k + x * row, row, full, depth);
            else ATTN__FN(pack_keys)(panels + x, k + first * row, row, last, depth);
        }
        if (n > ATTN__PANEL) k += ATTN__PANEL * row;     /* a single row may have any stride */
    }
}

/* Packs n rows of V into panels of 16 columns, 128 rows apart. Rows with needed 0 may be
   uninitialised and become zeros (needed NULL: all are needed). Returns 1 if a value is not
   finite. */
static ATTN__TARGET int ATTN__FN(pack_v)(float *panels, const float *v, ptrdiff_t row, int n,
                                         int v_head_dim, const unsigned char *needed)
{
    attn__vec odd = attn__vset(0.0f);                /* x - x is 0, or NaN if x is not finite */
    int j, x, i;
    for (j = 0; j < n; j++, v += row, panels += ATTN__PANEL) {
        float *to = panels;
        if (needed && !needed[j]) {
            for (x = 0; x < v_head_dim; x += ATTN__PANEL, to += ATTN__CHUNK * ATTN__PANEL)
                memset(to, 0, ATTN__PANEL * sizeof(float));
            continue;
        }
        for (x = 0; x + ATTN__PANEL <= v_head_dim; x += ATTN__PANEL) {
            for (i = 0; i < ATTN__PANEL; i += ATTN__LANES) {
                const attn__vec y = attn__vload(v + x + i);
                attn__vstore(to + i, y);
                odd = attn__vadd(odd, attn__vsub(y, y));
            }
            to += ATTN__CHUNK * ATTN__PANEL;
        }
        /* The last panel may be wider than V; its padding is zero, and no output uses it. */
        for (i = 0; x < v_head_dim && i < ATTN__PANEL; i += ATTN__LANES) {
            const attn__vec y = attn__load_part(v + x + i, v_head_dim - x - i);
            attn__vstore(to + i, y);
            odd = attn__vadd(odd, attn__vsub(y, y));
        }
    }
    return attn__mask_bits(attn__is_nan(odd)) != 0;
}

/* ---- storage in 16 and 8 bits: `how` is an attn_storage, or ATTN__F16_SOFT ------------------- */
/* 1 for 16 bits: a vector is widened with at most two instructions. */
static ATTN__TARGET int ATTN__FN(reads)(attn_storage storage)
{
    return storage == ATTN_F16 ? (int)ATTN__HAS_HALF : storage == ATTN_BF16 ? ATTN__HAS_BF16
         : storage == ATTN_F32 || storage == ATTN_Q8;
}

/* Returns the address of element i of an array. */
ATTN__V const void *ATTN__FN(value_at)(const int how, const void *p, ptrdiff_t i)
{
    if (how == ATTN_F32) return (const float *)p + i;
    if (how == ATTN_Q8) return (const signed char *)p + i;
    return (const unsigned short *)p + i;
}

/* Returns a vector of values as floats; not for ATTN__F16_SOFT. */
ATTN__V attn__vec ATTN__FN(load)(const int how, const void *p, ptrdiff_t i)
{
    p = ATTN__FN(value_at)(how, p, i);
    if (how == ATTN_Q8) return attn__vbytes((const signed char *)p);
    if (how == ATTN_F32) return attn__vload((const float *)p);
    /* Not `how`: compilers would copy the conversion by integers into all tiles and remove it
       later, which takes a fifth of the time of compiling. */
    return attn__vwiden((const unsigned short *)p,
                        how == ATTN_F16 ? (int)ATTN_F16 : (int)ATTN_BF16);
}

/* Code that reads stored values is written once and compiled for each value of the constant `how`.
 * Values after the last whole vector are converted here, not by a call: gcc makes a final call a
 * jump and omits vzeroupper, which slows down all SSE code after it. */
ATTN__V void ATTN__FN(narrow_how)(const int how, unsigned short *to, const float *from, size_t n)
{
    size_t i;
    int rest;
    for (i = 0; i + ATTN__LANES <= n; i += ATTN__LANES)
        attn__vnarrow(to + i, attn__vload(from + i), how);
    for (rest = (int)(n - i); rest > 0; rest--, i++)
        to[i] = attn__narrow_one(from[i], (attn_storage)how);
}

static ATTN__TARGET void ATTN__FN(narrow)(void *to, const float *from, size_t n,
                                          attn_storage storage)
{
    unsigned short *narrow = (unsigned short *)to;
    if (storage == ATTN_BF16) ATTN__FN(narrow_how)(ATTN_BF16, narrow, from, n);
    else if (ATTN__HAS_HALF) ATTN__FN(narrow_how)(ATTN_F16, narrow, from, n);
    else attn__narrow_scalar(to, from, n, storage);
}

ATTN__V void ATTN__FN(widen_how)(const int how, float *to, const void *from, size_t n,
                                 attn_storage storage)
{
    size_t i;
    int rest;
    for (i = 0; i + ATTN__LANES <= n; i += ATTN__LANES)
        attn__vstore(to + i, how == ATTN__F16_SOFT
                             ? attn__vwiden((const unsigned short *)from + i, how)
                             : ATTN__FN(load)(how, from, (ptrdiff_t)i));
    for (rest = (int)(n - i); rest > 0; rest--, i++) to[i] = attn__stored(from, -1, i, storage);
}

static ATTN__TARGET void ATTN__FN(pack_bytes)(float *to, const signed char *v, ptrdiff_t row,
                                              int n, int panels)
{
    int p, j, x;
    for (p = 0; p < panels; p++, v += 16, to += (int)ATTN__CHUNK * 16)
        for (j = 0; j < n; j++)
            for (x = 0; x < 16; x += ATTN__LANES)
                attn__vstore(to + j * 16 + x, attn__vbytes(v + j * row + x));
}

/* The product with `by` is rounded to a float, and then to an integer. This rounds the exact
 * product unless the float is halfway between two integers: then attn__q8_round does. */
static ATTN__TARGET float ATTN__FN(round_row)(signed char *to, const float *x, size_t n, int *sum)
{
    const attn__vec zero = attn__vset(0.0f), even = attn__vset(12582912.0f);      /* 1.5 * 2^23 */
    attn__vec most = zero, odd = zero, total = zero, factor;
    float by, scale, part[ATTN__LANES];
    signed char bytes[ATTN__LANES];
    size_t i;
    int k;
    for (i = 0; i < n; i += ATTN__LANES) {
        const attn__vec a = attn__load_part(x + i, (int)(n - i));
        most = attn__vmax(most, attn__vmax(a, attn__vsub(zero, a)));
        odd = attn__vadd(odd, attn__vsub(a, a));
    }
    scale = attn__q8_scale_of(attn__mask_bits(attn__is_nan(odd)) ? 0x7f800000u
                              : attn__bits(attn__max_lane(most)), &by);
    *sum = 0;
    if (!(by > 0.0f)) { memset(to, 0, n); return scale; }
    factor = attn__vset(by);
    for (i = 0; i < n; i += ATTN__LANES) {
        const attn__vec a = attn__load_part(x + i, (int)(n - i)), y = attn__vmul(a, factor);
        attn__vec whole = attn__vsub(attn__vadd(y, even), even), rest = attn__vsub(y, whole);
        rest = attn__vmax(rest, attn__vsub(zero, rest));
        if (attn__mask_bits(attn__vless(attn__vset(0.499999f), rest))) {
            attn__vstore(part, a);
            for (k = 0; k < ATTN__LANES; k++) part[k] = attn__q8_round(part[k], by);
            whole = attn__vload(part);
        }
        total = attn__vadd(total, whole);
        if (i + ATTN__LANES <= n) attn__store_bytes(to + i, whole);
        else {
            attn__store_bytes(bytes, whole);
            memcpy(to + i, bytes, n - i);
        }
    }
    if (n <= ATTN__Q8_WIDEST) *sum = (int)attn__sum_lanes(total);
    return scale;
}

/* Returns x * (scale * by). The product is an fma with 0, so compilers cannot fuse it into a later
 * sum. */
ATTN__V attn__vec ATTN__FN(scaled)(attn__vec x, attn__vec scale, float by)
{
    return attn__vfma(x, attn__vmul(scale, attn__vset(by)), attn__vset(0.0f));
}

static ATTN__TARGET void ATTN__FN(times)(float *x, const float *scale, float by, int n)
{
    int i;
    for (i = 0; i < n; i += ATTN__LANES)
        attn__vstore(x + i, ATTN__FN(scaled)(attn__vload(x + i), attn__vload(scale + i), by));
}

static ATTN__TARGET void ATTN__FN(widen)(float *to, const void *from, size_t n,
                                         attn_storage storage)
{
    if (storage == ATTN_Q8) ATTN__FN(widen_how)(ATTN_Q8, to, from, n, storage);
    else if (storage == ATTN_BF16) ATTN__FN(widen_how)(ATTN_BF16, to, from, n, storage);
    else if (ATTN__HAS_HALF) ATTN__FN(widen_how)(ATTN_F16, to, from, n, storage);
    else ATTN__FN(widen_how)(ATTN__F16_SOFT, to, from, n, storage);
}

/* Returns 1 if the right-hand side has a value that is not finite. This is rare, so all values are
 * scanned: leaving early would cost a branch per step. */
ATTN__V int ATTN__FN(not_finite_how)(const int how, const attn__gemm *g)
{
    attn__vec odd = attn__vset(0.0f);       /* as in pack_v: NaN after a value that is not finite */
    int p, t, i;
    for (p = 0; p < g->n_panels; p++) {
        const void *b = ATTN__FN(value_at)(how, g->b, p * g->b_panel);
        for (t = 0; t < g->depth; t++, b = ATTN__FN(value_at)(how, b, g->b_step))
            for (i = 0; i < ATTN__PANEL; i += ATTN__LANES) {
                const attn__vec y = ATTN__FN(load)(how, b, i);
                odd = attn__vadd(odd, attn__vsub(y, y));
            }
    }
    return attn__mask_bits(attn__is_nan(odd)) != 0;
}

static ATTN__TARGET int ATTN__FN(not_finite)(const attn__gemm *g)
{
    if (!ATTN__HAS_BF16 || g->stored == ATTN_F32) return ATTN__FN(not_finite_how)(ATTN_F32, g);
    if (g->stored == ATTN_F16) return ATTN__FN(not_finite_how)(ATTN_F16, g);
    return ATTN__FN(not_finite_how)(ATTN_BF16, g);
}

/* ---- scores of a few queries over keys in place, without packing ----------------------------- */
/* Continues the chains s, one key per lane, over n components; x[c]: component c of these keys. */
ATTN__V attn__vec ATTN__FN(dot)(attn__vec s, const float *q, const attn__vec *x, const int n)
{
#define ATTN__DOT(i) if (n > (i)) s = attn__vfma(attn__vset(q[i]), x[i], s);
    ATTN__COMPONENTS(ATTN__DOT)
#undef ATTN__DOT
    return s;
}

/* Continues the scores of some rows against a vector of keys over the last n components, fewer than
 * ATTN__TRANSPOSED. Nothing after the rows may be read, so the components are copied first. */
static ATTN__NOINLINE ATTN__TARGET void ATTN__FN(score_end)(attn__score_place at, int n, int rows,
                                                            ptrdiff_t q_row, ptrdiff_t k_row,
                                                            ptrdiff_t c_row)
{
    /* With long vectors each row is stored as one vector, and the next row overwrites the zeros
       after it. So a load finds the whole vector in one store; a load of several smaller stores
       would wait until they reach the cache. */
    float part[ATTN__LANES * (ATTN__TRANSPOSED + 1)];
    attn__vec x[ATTN__TRANSPOSED];
    int i;
    for (i = 0; i < ATTN__LANES; i++)
        attn__vstore(part + i * ATTN__TRANSPOSED,
                     attn__load_part(at.k + attn__min(i, at.last) * k_row, n));
    attn__transpose(x, part, ATTN__TRANSPOSED * sizeof(float), ATTN__LANES - 1);
    for (; rows > 0; rows--, at.q += q_row, at.c += c_row)
        attn__vstore(at.c, ATTN__FN(dot)(attn__vload(at.c), at.q, x, n));
}

/* Continues the chains of the first `rows` queries against a vector of keys over n components, a
 * multiple of ATTN__TRANSPOSED and at most 8. The keys are transposed once for all rows. */
ATTN__TEMPLATE void ATTN__FN(score_keys8)(const int rows, const int n, attn__vec *s, const float *q,
                                          ptrdiff_t q_row, const float *k, ptrdiff_t k_row,
                                          int last)
{
    attn__vec x[ATTN__TRANSPOSED];
#define ATTN__CHAIN(r, t) \
    if (rows > (r)) s[r] = ATTN__FN(dot)(s[r], q + (r) * q_row + (t), x, ATTN__TRANSPOSED);
#define ATTN__PART(t) \
    if (n > (t)) { \
        attn__transpose(x, k + (t), k_row * (ptrdiff_t)sizeof(float), last); \
        ATTN__CHAIN(0, t) ATTN__CHAIN(1, t) ATTN__CHAIN(2, t) ATTN__CHAIN(3, t) \
    }
    ATTN__PART(0)
    ATTN__PART(ATTN__TRANSPOSED)
#undef ATTN__PART
#undef ATTN__CHAIN
}

/* The tile of scores: `rows` queries against `vecs` vectors of keys, at most four chains. The
 * vectors are the next keys of one head, up to 16, or the same keys of two heads; `apart` is the
 * distance between them. Each vector is read for 8 components before the next one, so that at most
 * ATTN__LANES rows of memory are read at once: more would evict each other from L1 if they are 2 KB
 * and more apart. Prefetches from at.next as many lines as it reads. */
ATTN__TEMPLATE void ATTN__FN(score_tile)(const int rows, const int vecs, const attn__gemm *g,
                                         attn__score_place at, attn__heads apart)
{
    const ptrdiff_t q_row = g->a_row, k_row = g->b_step, c_row = g->c_row;
    const float *q = at.q, *k = at.k, *next = at.next;
    attn__vec s[4];
    int t, v;
    s[0] = s[1] = s[2] = s[3] = attn__vset(0.0f);
#define ATTN__LINE(i) if (ATTN__LANES / 2 > (i)) ATTN__FETCH(next + (i) * 16);
#define ATTN__VEC(v, n) \
    if (vecs > (v)) { \
        if (next) { \
            ATTN__EIGHT(ATTN__LINE) \
            next += ATTN__LANES * (n); \
        } \
        ATTN__FN(score_keys8)(rows, n, s + (v) * rows, q + (v) * apart.q, q_row, \
                              k + (v) * apart.k, k_row, at.last); \
    }
    for (t = g->depth; t >= 8; t -= 8, q += 8, k += 8) {
        ATTN__VEC(0, 8) ATTN__VEC(1, 8) ATTN__VEC(2, 8) ATTN__VEC(3, 8)
    }
    if (ATTN__TRANSPOSED < 8 && t >= ATTN__TRANSPOSED) {
        ATTN__VEC(0, ATTN__TRANSPOSED) ATTN__VEC(1, ATTN__TRANSPOSED)
        ATTN__VEC(2, ATTN__TRANSPOSED) ATTN__VEC(3, ATTN__TRANSPOSED)
        t -= ATTN__TRANSPOSED;
        q += ATTN__TRANSPOSED;
        k += ATTN__TRANSPOSED;
    }
#undef ATTN__VEC
#undef ATTN__LINE
#define ATTN__STORE(i) \
    if (rows * vecs > (i)) attn__vstore(at.c + (i) / rows * apart.c + (i) % rows * c_row, s[i]);
    ATTN__STORE(0) ATTN__STORE(1) ATTN__STORE(2) ATTN__STORE(3)
#undef ATTN__STORE
    for (v = 0; v < vecs && t > 0; v++) {
        const attn__score_place rest = { q + v * apart.q, k + v * apart.k, at.c + v * apart.c,
                                         NULL, at.last };
        ATTN__FN(score_end)(rest, t, rows, q_row, k_row, c_row);
    }
}

/* Scores each query against n < 16 keys, one vector at a time. Scores of heads follow each other.
 * Lanes after the last key repeat its score; vectors after it are zeros. They are hidden later, but
 * read before that. */
static ATTN__NOINLINE ATTN__TARGET void ATTN__FN(score_few)(const attn__gemm *g, const float *k,
                                                            float *c, int n, attn__heads heads)
{
    const attn__gemm own = *g;                       /* a copy that stores cannot alias */
    const attn__heads one = { 1, 0, 0, 0 };
    int h, r, x;
    for (x = 0; x < n; x += ATTN__LANES)
        for (r = 0; r < own.rows; r++) {
            attn__score_place at = { own.a + r * own.a_row, k + x * own.b_step,
                                     c + r * own.c_row + x, NULL,
                                     attn__min(ATTN__LANES, n - x) - 1 };
            for (h = 0; h < heads.n; h++) {
                ATTN__FN(score_tile)(1, 1, &own, at, one);
                at.q += heads.q;
                at.k += heads.k;
                at.c += heads.c;
            }
        }
    for (; x < 16; x += ATTN__LANES)
        for (r = 0; r < heads.n * own.rows; r++)
            attn__vstore(c + r * own.c_row + x, attn__vset(0.0f));
}

/* Scores 16 keys against `rows` queries of a head. */
ATTN__TEMPLATE void ATTN__FN(score_rows)(const int rows, const attn__gemm *g, attn__score_place at)
{
    const int most = 16 / ATTN__LANES, vecs = 4 / rows < most ? 4 / rows : most;
    const attn__heads apart = { vecs, 0, ATTN__LANES * g->b_step, ATTN__LANES };
    int x;
    for (x = 0; x < 16; x += vecs * ATTN__LANES) {
        ATTN__FN(score_tile)(rows, vecs, g, at, apart);
        at.k += vecs * apart.k;
        at.c += vecs * apart.c;
        if (at.next) at.next += vecs * ATTN__LANES * g->depth;
    }
}

/* Returns the address that a tile of `step` keys, from key j of n on, prefetches for head h, 32
 * keys ahead in address order; the tile prefetches as many lines as it reads. After the last keys
 * of a head these are about the first keys of the next head, or after the last head those of the
 * `more` keys that follow the n keys. NULL: rows have gaps, or heads of other blocks, or no key
 * follows. */
ATTN__V const float *ATTN__FN(keys_ahead)(const attn__gemm *g, attn__heads heads, int n, int more,
                                          int step, int j, int h)
{
    const int adjacent = heads.n > 1 && heads.k < g->b_step;
    const ptrdiff_t depth = g->depth;
    int key = j + 32;
    if (g->b_step != (adjacent ? heads.n * depth : depth)) return NULL;
    if (!adjacent && key + step > n) {
        if (h + 1 < heads.n) key -= n;
        h = h + 1 < heads.n ? h + 1 : 0;
    }
    if (key + step > n + more) return NULL;
    return (const float *)g->b + key * g->b_step + h * (adjacent ? step * depth : heads.k);
}

/* One to four queries of each head against n keys. If heads are adjacent in a row, all of them take
 * a few keys before the next ones, so memory is read sequentially. With 8 lanes and more one query
 * then takes a vector of keys of two heads at once: two chains, and with 8 lanes only 8 rows of
 * memory at a time (16 heads of 128 take 0.8 of the time). Tiles would read past the last n % 16
 * keys, so these are taken query by query. */
static ATTN__TARGET void ATTN__FN(scores)(const attn__gemm *g, attn__heads heads, int n, int more)
{
    const int adjacent = heads.n > 1 && heads.k < g->b_step;
    const int pairs = ATTN__LANES > 4 && g->rows == 1 && adjacent;
    const int step = pairs ? ATTN__LANES : 16;
    const int some = adjacent ? heads.n : 1, whole = n / 16 * 16;
    const float *k = (const float *)g->b;
    int h, i, j;
    ATTN_ASSERT(g->rows <= 4);
    for (h = 0; h < heads.n; h += some)
        for (j = 0; j < whole; j += step)
            for (i = h; i < h + some; i++) {
                const attn__score_place at = {
                    g->a + i * heads.q, k + i * heads.k + j * g->b_step, g->c + i * heads.c + j,
                    ATTN__FN(keys_ahead)(g, heads, n, more, step, j, i), ATTN__LANES - 1
                };
                if (pairs && i + 1 < heads.n) {
                    ATTN__FN(score_tile)(1, 2, g, at, heads);
                    i++;
                } else if (pairs) ATTN__FN(score_tile)(1, 1, g, at, heads);
                else if (g->rows == 1) ATTN__FN(score_rows)(1, g, at);
                else if (g->rows == 2) ATTN__FN(score_rows)(2, g, at);
                else if (g->rows == 3) ATTN__FN(score_rows)(3, g, at);
                else ATTN__FN(score_rows)(4, g, at);
            }
    if (whole < n)
        ATTN__FN(score_few)(g, k + whole * g->b_step, g->c + whole, n - whole, heads);
}

/* A query of each of up to ATTN__LANES heads against a key of the same head. Lanes hold different
 * heads, and both sides are transposed. */
ATTN__V void ATTN__FN(score_key)(const attn__gemm *g, attn__heads heads, attn__score_place at)
{
    attn__vec s = attn__vset(0.0f), x[ATTN__TRANSPOSED], y[ATTN__TRANSPOSED];
    float lane[ATTN__LANES];
    int t, i;
    for (t = 0; t + ATTN__TRANSPOSED <= g->depth; t += ATTN__TRANSPOSED) {
        attn__transpose(x, at.k + t, heads.k * (ptrdiff_t)sizeof(float), at.last);
        attn__transpose(y, at.q + t, heads.q * (ptrdiff_t)sizeof(float), at.last);
#define ATTN__DOT(i) s = attn__vfma(y[i], x[i], s);
        ATTN__COMPONENTS(ATTN__DOT)
#undef ATTN__DOT
    }
    attn__vstore(lane, s);
    for (i = 0; i <= at.last; i++, at.q += heads.q, at.k += heads.k) {
        int u;
        s = attn__vset(lane[i]);
        for (u = t; u < g->depth; u++)
            s = attn__vfma(attn__vset(at.q[u]), attn__vset(at.k[u]), s);
        ATTN__FN(store_part)(at.c + i * heads.c, s, 1);
    }
}

/* g->rows queries of each head against a list of keys. */
static ATTN__TARGET void ATTN__FN(score_keys)(const attn__gemm *g, attn__heads heads,
                                              const unsigned char *key, int n)
{
    int h, r, t;
    for (t = 0; t < n; t++)
        for (h = 0; h < heads.n; h += ATTN__LANES)
            for (r = 0; r < g->rows; r++) {
                const attn__score_place at = {
                    g->a + h * heads.q + r * g->a_row,
                    (const float *)g->b + key[t] * g->b_step + h * heads.k,
                    g->c + h * heads.c + r * g->c_row + key[t], NULL,
                    attn__min(heads.n - h, ATTN__LANES) - 1
                };
                ATTN__FN(score_key)(g, heads, at);
            }
}

/* ---- scores of keys in 8 bits ---------------------------------------------------------------- */
#define ATTN__SUMS(do) \
    ATTN__EIGHT(do) do(8) do(9) do(10) do(11) do(12) do(13) do(14) do(15)
#define ATTN__STEP_NEW(i) ATTN__STEP(attn__vdot, i)
#define ATTN__STEP_OLD(i) ATTN__STEP(attn__vdot_old, i)

/* Multiplies `rows` queries by `vecs` vectors of keys, from key x on, and the sums by the scales:
 * s = sum * (q.scale * by), with one rounding each. Prefetches at `next` (NULL: nothing) as many
 * lines as it reads. */
ATTN__INLINE ATTN__DOT_TARGET void ATTN__FN(dot_tile)(const int rows, const int vecs,
                                                      const attn__gemm *g, const void *panels,
                                                      attn__byte_rows q, float *c, int x,
                                                      const char *next)
{
    const signed char *k = (const signed char *)panels + x / 16 * g->b_panel + x % 16 * 4;
    attn__sums s[16];
    int sum[4] = { 0, 0, 0, 0 }, t;
    for (t = 0; t < rows; t++) memcpy(sum + t, q.at + t * q.row, sizeof *sum);
#define ATTN__START(i) \
    if (rows * vecs > (i)) s[i] = attn__sums_of(-ATTN__DOT_BIAS * sum[(i) / vecs % 4]);
#define ATTN__STEP(dot, i) \
    if (rows * vecs > (i)) \
        s[i] = dot(s[i], k + (i) % vecs * ATTN__LANES / 16 * g->b_panel + \
                         (i) % vecs * ATTN__LANES % 16 * 4, q.at + (i) / vecs * q.row);
#define ATTN__STORE(i) \
    if (rows * vecs > (i)) { \
        const attn__vec scale = attn__vload(q.scale + x + (i) % vecs * ATTN__LANES); \
        attn__vstore(c + x + (i) / vecs * g->c_row + (i) % vecs * ATTN__LANES, \
                     ATTN__FN(scaled)(attn__sums_floats(s[i]), scale, \
                                      q.by[(i) / vecs * q.by_row])); \
    }
#define ATTN__STEPS(do) \
    for (t = 0, q.at += sizeof *sum; t < g->depth; t += 4, k += 64, q.at += 4) { \
        if (next) { \
            ATTN__FETCH(next); \
            if (vecs * ATTN__LANES > 16) ATTN__FETCH(next + 64); \
            if (vecs * ATTN__LANES > 32) { ATTN__FETCH(next + 128); ATTN__FETCH(next + 192); } \
            next += vecs * ATTN__LANES * 4; \
        } \
        ATTN__SUMS(do) \
    }
    ATTN__SUMS(ATTN__START)
    ATTN__DOT_STEPS
    ATTN__SUMS(ATTN__STORE)
#undef ATTN__START
#undef ATTN__STEP
#undef ATTN__STEPS
#undef ATTN__STORE
}

/* All columns of `rows` rows. */
ATTN__INLINE ATTN__DOT_TARGET void ATTN__FN(dot_columns)(const int rows, const attn__gemm *g,
                                                         const void *b, attn__byte_rows q,
                                                         float *c, const char *next)
{
    const int vecs = 4, width = 16 * g->n_panels;
    int x;
    for (x = 0; x + vecs * ATTN__LANES <= width; x += vecs * ATTN__LANES) {
        ATTN__FN(dot_tile)(rows, vecs, g, b, q, c, x, next);
        if (next) next += vecs * ATTN__LANES * g->b_panel / 16;
    }
    if (vecs * ATTN__LANES > 16)
        for (; x < width; x += ATTN__LANES) ATTN__FN(dot_tile)(rows, 1, g, b, q, c, x, NULL);
}

/* All rows: up to four at a time if they read the same panels, two with 16 registers. Only
   calls with more rows than two prefetch. */
static ATTN__NOINLINE ATTN__DOT_TARGET void ATTN__FN(dot_rows)(const attn__gemm *g,
                                                               attn__byte_rows q)
{
    enum { MOST = ATTN__ROWS < 12 ? 2 : 4 };
    const char *b = (const char *)g->b;
    const char *next = g->rows > 2 && !g->b_row ? (const char *)g->prefetch : NULL;
    float *c = g->c;
    int left, some;
    for (left = g->rows; left > 0; left -= some) {
        some = g->b_row ? 1 : attn__min(left, MOST);
        if (MOST == 4 && some == 4) ATTN__FN(dot_columns)(4, g, b, q, c, next);
        else if (MOST == 4 && some == 3) ATTN__FN(dot_columns)(3, g, b, q, c, next);
        else if (some == 2) ATTN__FN(dot_columns)(2, g, b, q, c, next);
        else ATTN__FN(dot_columns)(1, g, b, q, c, NULL);
        b += g->b_row;
        q.at += some * q.row;
        q.by += some * q.by_row;
        q.scale += q.scale_row;
        c += some * g->c_row;
        next = NULL;
    }
}

static ATTN__TARGET void ATTN__FN(score_bytes)(const attn__gemm *g, attn__byte_rows q)
{
    ATTN__DOT_ELSE(score_bytes, (g, q))
    ATTN__FN(dot_rows)(g, q);
}

#ifndef ATTN_NO_LAYERS
/* ---- linears in 8 bits ----------------------------------------------------------------------- */
#define ATTN__PLACE(i) ((i) % vecs * ATTN__LANES / 16 * g->w_panel)
#define ATTN__LANE(i) (x % 16 + (i) % vecs * ATTN__LANES % 16)
/* The chains of `rows` rows, from row r on, and `vecs` vectors of outputs, from output x on. The
   first rows prefetch a chain ahead; half as far if a single row takes vectors of 16 lanes. */
ATTN__INLINE ATTN__DOT_TARGET void ATTN__FN(byte_tile)(const int rows, const int vecs,
                                                       const attn__byte_linear *g, int r, int x,
                                                       float *to, ptrdiff_t to_row)
{
    const attn__byte_panel *w = g->w + x / 16 * g->w_panel;
    const attn__byte_block *block = g->x + r * g->x_row;
    const int half = rows == 1 && ATTN__LANES == 16, blocks = (int)ATTN__BLOCKS / (half ? 2 : 1);
    const ptrdiff_t ahead = blocks * (ptrdiff_t)sizeof *w;
    static const float zeros[4 * ATTN__LANES] = { 0.0f };
    const float *bias = g->bias ? g->bias + x : zeros;
    attn__vec y[16];
    attn__sums s[16];
    int b, t;
#define ATTN__TO(i) (to + (i) / vecs * to_row + (i) % vecs * ATTN__LANES)
#define ATTN__BEGIN(i) \
    if (rows * vecs > (i)) y[i] = attn__vload(bias + (i) % vecs * ATTN__LANES);
#define ATTN__START(i) \
    if (rows * vecs > (i)) \
        s[i] = attn__sums_of(-ATTN__DOT_BIAS * block[(i) / vecs * g->x_row].sum);
#define ATTN__STEP(dot, i) \
    if (rows * vecs > (i)) \
        s[i] = dot(s[i], (w + ATTN__PLACE(i))->n + 64 * t + 4 * ATTN__LANE(i), \
                   block[(i) / vecs * g->x_row].n + 4 * t);
#define ATTN__NEXT_LINE(i) \
    if (vecs > (i) && (i) * ATTN__LANES % 16 == 0) \
        ATTN__FETCH((const char *)(w + ATTN__PLACE(i)) + ahead + 64 * t);
#define ATTN__ADD(i) \
    if (rows * vecs > (i)) \
        y[i] = attn__vfma(attn__sums_floats(s[i]), \
                          attn__vmul(attn__vload((w + ATTN__PLACE(i))->scale + ATTN__LANE(i)), \
                                     attn__vset(block[(i) / vecs * g->x_row].scale)), y[i]);
#define ATTN__OLD(i) if (rows * vecs > (i)) y[i] = attn__vadd(attn__vload(ATTN__TO(i)), y[i]);
#define ATTN__STORE(i) \
    if (rows * vecs > (i)) \
        attn__vstore(ATTN__TO(i), \
                     attn__choose(attn__is_nan(y[i]), attn__vset(attn__nan()), y[i]));
#define ATTN__STEPS(do) \
    for (t = 0; t < ATTN__BLOCK / 4; t++) { \
        if (r == 0) { ATTN__SUMS(ATTN__NEXT_LINE) } \
        ATTN__SUMS(do) \
    }
    ATTN__SUMS(ATTN__BEGIN)
    for (b = 0; b < g->blocks; b++, w++, block++) {
        ATTN__SUMS(ATTN__START)
        ATTN__DOT_STEPS
        if (r == 0) { ATTN__SUMS(ATTN__NEXT_LINE) }         /* a block has nine lines */
        ATTN__SUMS(ATTN__ADD)
    }
    if (!g->bias) { ATTN__SUMS(ATTN__OLD) }
    ATTN__SUMS(ATTN__STORE)
#undef ATTN__BEGIN
#undef ATTN__TO
#undef ATTN__OLD
#undef ATTN__START
#undef ATTN__STEP
#undef ATTN__STEPS
#undef ATTN__NEXT_LINE
#undef ATTN__ADD
#undef ATTN__STORE
}
#undef ATTN__PLACE
#undef ATTN__LANE

/* The tiles: X(rows, vectors). Each is a function: with all of them in one, gcc needs more
   registers and more code. One and two rows take four vectors, or as many as are left; with 32
   registers, more rows take two. With 16 registers larger tiles are not faster. */
#if ATTN__ROWS == 12
#define ATTN__TALL_TILES(X) X(6, 2) X(5, 2) X(4, 2) X(3, 2)
#else
#define ATTN__TALL_TILES(X)
#endif
#if ATTN__LANES == 16
#define ATTN__NARROW_TILES(X) X(2, 2) X(1, 2) X(1, 1)
#elif ATTN__LANES == 8
#define ATTN__NARROW_TILES(X) X(2, 2) X(1, 2)
#else
#define ATTN__NARROW_TILES(X)             /* a panel is four vectors */
#endif
#define ATTN__BYTE_TILES(X) X(1, 4) X(2, 4) ATTN__TALL_TILES(X) ATTN__NARROW_TILES(X)
#define ATTN__DEFINE_TILE(rows, vecs) \
    static ATTN__NOINLINE ATTN__DOT_TARGET void ATTN__FN(byte_tile_##rows##_##vecs)( \
        const attn__byte_linear *g, int r, int x, float *to, ptrdiff_t to_row) \
    { \
        ATTN__FN(byte_tile)(rows, vecs, g, r, x, to, to_row); \
    }
ATTN__BYTE_TILES(ATTN__DEFINE_TILE)
#undef ATTN__DEFINE_TILE

static ATTN__TARGET void ATTN__FN(linear_bytes)(const attn__byte_linear *g)
{
    const int width = (g->columns + 15) / 16 * 16;
    float part[12 * ATTN__LANES];         /* a tile whose columns exist in part */
    int x, r, i, vecs, rows;
    ATTN__DOT_ELSE(linear_bytes, (g))
    for (x = 0; x < g->columns; x += vecs * ATTN__LANES) {
        vecs = (int)attn__min(width - x, 4 * ATTN__LANES) / ATTN__LANES;
        vecs = vecs == 4 && (ATTN__ROWS < 12 || g->rows < 3) ? 4 : vecs >= 2 ? 2 : 1;
        for (r = 0; r < g->rows; r += rows) {
            const int left = g->rows - r, exist = attn__min(g->columns - x, vecs * ATTN__LANES);
            const size_t bytes = (size_t)exist * sizeof(float);
            float *const y = g->y + r * g->y_row + x, *to = y;
            ptrdiff_t to_row = g->y_row;
            rows = ATTN__ROWS < 12 ? attn__min(left, 2)
                 : vecs == 1 ? 1 : left > 12 ? 6 : left > 6 ? (left + 1) / 2 : left;
            if (exist < vecs * ATTN__LANES) {
                to_row = vecs * ATTN__LANES;
                to = (float *)memset(part, 0, sizeof part);
                for (i = 0; i < rows && !g->bias; i++)
                    memcpy(to + i * to_row, y + i * g->y_row, bytes);
            }
#define ATTN__TRY_TILE(some, n) \
            if (rows == (some) && vecs == (n)) \
                ATTN__FN(byte_tile_##some##_##n)(g, r, x, to, to_row); \
            else
            ATTN__BYTE_TILES(ATTN__TRY_TILE) { }
#undef ATTN__TRY_TILE
            for (i = 0; i < rows && to == part; i++)
                memcpy(y + i * g->y_row, to + i * to_row, bytes);
        }
    }
}
#undef ATTN__BYTE_TILES
#undef ATTN__TALL_TILES
#undef ATTN__NARROW_TILES
#endif
#undef ATTN__SUMS
#undef ATTN__STEP_NEW
#undef ATTN__STEP_OLD

/* ---- the matrix product ---------------------------------------------------------------------- */
/* The register tile: `rows` rows x `vecs` vectors of columns. Registers:
 *     c[r * vecs + v]   the chain of row r and vector v, through the whole depth
 *     b[v]              vector v of one step of the right-hand side; a single row reads it from
 *                       memory
 *     q                 one number of the left-hand side, in every lane
 * With 6 rows and AVX2 these are 12 + 2 + 1 of 16 registers, with 12 rows and AVX-512 24 + 2 + 1 of
 * 32. All indices are constants after inlining, because compilers keep arrays with variable
 * indices in memory.
 * layout: of the right-hand side. PANELS, steps are 16 apart; ROWS, panels are 16 apart; both save
 * instructions; ANY, either; LISTED, one row, and a list selects the steps; PART, one row x one
 * panel, of which some columns exist, and a list may select the steps. */
enum { ATTN__FN(ANY), ATTN__FN(PANELS), ATTN__FN(ROWS), ATTN__FN(LISTED), ATTN__FN(PART) };

/* do(r, v) for each chain of a tile. The tests of r alone are constant before inlining, and remove
   the chains that no tile has. */
#define ATTN__ROW(r, do) \
    if (rows > (r)) { \
        do(r, 0) \
        if (vecs > 1) { do(r, 1) } \
        if ((r) < 2 && vecs > 2) { do(r, 2) do(r, 3) } \
        if ((r) < 1 && vecs > 4) { do(r, 4) do(r, 5) do(r, 6) do(r, 7) } \
    }
/* Moves a pointer on by a row, and hides how, because compilers would compute the address of each
   vector. */
#define ATTN__NEXT_ROW(p, row) { \
        p += row; \
        ATTN__HIDE_ORIGIN(p); \
    }
#define ATTN__SIX(first, do) \
    ATTN__ROW((first), do) ATTN__ROW((first) + 1, do) ATTN__ROW((first) + 2, do) \
    ATTN__ROW((first) + 3, do) ATTN__ROW((first) + 4, do) ATTN__ROW((first) + 5, do)
#if ATTN__ROWS == 12
#define ATTN__CHAINS(do) ATTN__SIX(0, do) ATTN__SIX(6, do)
#else
#define ATTN__CHAINS(do) ATTN__SIX(0, do)
#endif

/* The operands of a tile at its next step, and the address of its results. */
typedef struct {
    const float *a[4];                   /* left-hand side: rows 0, 3, 6 and 9, so that the address
                                            of each row fits one instruction */
    ptrdiff_t row, row2;                 /* floats to the next row, and to the second; 0: one row */
    const void *b;                       /* right-hand side */
    ptrdiff_t step, panel;               /* values from step to step, from panel to panel */
    const void *next;                    /* address that the next step prefetches, or NULL */
    const float *from;                   /* the chains start with these */
    ptrdiff_t from_row;
    float *to;                           /* results */
    ptrdiff_t vec;                       /* floats between vectors of from, and of results */
    const int *list;                     /* the steps; NULL: all */
    attn__vpart some[4];                 /* PART: the lanes that exist of each vector */
} ATTN__FN(operands);

/* Returns the operands of the tile at row r and column x, with right-hand side b. */
ATTN__V ATTN__FN(operands) ATTN__FN(operands_at)(const int how, const int single,
                                                 const attn__gemm *g, int r, int x, const void *b)
{
    static const float zeros[8 * ATTN__LANES] = { 0.0f };
    /* With 16 lanes the second vector of a single last panel is a copy of the first. */
    const int copy = ATTN__LANES == 16 && x + 16 == g->n_panels * 16 - (g->last_columns ? 16 : 0);
    ATTN__FN(operands) p;
    p.a[0] = p.a[1] = p.a[2] = p.a[3] = g->a + r * g->a_row;
    p.row = single ? 0 : g->a_row;                   /* a single row may have any stride */
    p.row2 = 2 * p.row;
    p.b = ATTN__FN(value_at)(how, b, x / 16 * g->b_panel + x % 16);
    p.step = g->b_step;
    p.panel = copy ? 0 : g->b_panel;
    /* A single row of 16 bits prefetches the same step of each panel. Three rows and more prefetch
       memory in order, once. */
    p.next = NULL;
    if (g->prefetch && single && how != ATTN_F32 && how != ATTN_Q8)
        p.next = (const char *)g->prefetch + ((const char *)p.b - (const char *)g->b);
    else if (g->prefetch && !single && g->rows > 2 && r == 0)
        p.next = ATTN__FN(value_at)(how, g->prefetch, (ptrdiff_t)x * g->depth);
    p.to = g->c + r * g->c_row + x;
    p.vec = copy ? 0 : ATTN__LANES;
    p.from = g->from ? g->from + r * g->from_row + x : zeros;
    p.from_row = g->from ? g->from_row : 0;
    p.list = NULL;
    p.some[0] = p.some[1] = p.some[2] = p.some[3] = attn__first(ATTN__LANES);
    return p;
}

/* Returns vector v of the step of the right-hand side at b. */
ATTN__TEMPLATE attn__vec ATTN__FN(tile_load)(const int how, const int layout, const int v,
                                             const ATTN__FN(operands) *p, const void *b)
{
    const ptrdiff_t panel = layout == ATTN__FN(ROWS) ? 16 : p->panel;
    const ptrdiff_t i = v * ATTN__LANES / 16 * panel + v * ATTN__LANES % 16;
    if (layout == ATTN__FN(PART) && how == ATTN_F32)
        return attn__load_some((const float *)b + i, p->some[v % 4]);
    return ATTN__FN(load)(how, b, i);
}

/* Continues the chains with the step that is s steps after p. */
ATTN__TEMPLATE void ATTN__FN(tile_step)(const int how, const int rows, const int vecs,
                                        const int layout, const int s, attn__vec *c,
                                        ATTN__FN(operands) *p)
{
    const int each = rows == 1 && layout != ATTN__FN(PANELS);      /* 1: b advances at each step */
    const int listed = layout == ATTN__FN(LISTED) || (layout == ATTN__FN(PART) && p->list);
    const ptrdiff_t step = layout == ATTN__FN(PANELS) ? 16 : p->step;
    attn__vec q = attn__vset(0.0f), b[4];
    const void *at;
    if (each) ATTN__HIDE_ORIGIN(p->b);               /* clang would keep a pointer per panel */
    if (listed) at = ATTN__FN(value_at)(how, p->b, *p->list * step);
    else at = each ? p->b : ATTN__FN(value_at)(how, p->b, s * step);
#define ATTN__SHARED(v) \
    if (rows > 1 && vecs > (v)) { \
        b[v] = ATTN__FN(tile_load)(how, layout, v, p, at); \
        ATTN__IN_REGISTER(b[v]); \
    }
    ATTN__SHARED(0) ATTN__SHARED(1) ATTN__SHARED(2) ATTN__SHARED(3)
#undef ATTN__SHARED
/* A single row loads each vector where its chain needs it. */
#define ATTN__MULTIPLY(r, v) { \
        const int i = (r) * vecs + (v); \
        const ptrdiff_t row = (r) % 3 == 0 ? 0 : (r) % 3 == 1 ? p->row : p->row2; \
        if ((v) == 0) q = attn__vset(p->a[(r) / 3][row + s]); \
        if ((r) == 0 && rows == 1) \
            c[i] = attn__vfma(q, ATTN__FN(tile_load)(how, layout, v, p, at), c[i]); \
        else ATTN__FMA_IN_PLACE(c[i], q, b[(v) % 4]); \
    }
    ATTN__CHAINS(ATTN__MULTIPLY)
#undef ATTN__MULTIPLY
    if (listed) p->list++;
    else if (each) p->b = ATTN__FN(value_at)(how, p->b, step);
}

/* Prefetches at p->next as much as one step reads. */
ATTN__TEMPLATE void ATTN__FN(tile_fetch)(const int how, const int rows, const int vecs, const int s,
                                         ATTN__FN(operands) *p)
{
    if (rows > 1) {
        ATTN__FETCH(p->next);
        if (how == ATTN_F32 && vecs * ATTN__LANES > 16) ATTN__FETCH((const float *)p->next + 16);
        p->next = ATTN__FN(value_at)(how, p->next, vecs * ATTN__LANES);
        return;
    }
#define ATTN__FETCH_LINE(v) \
    if (vecs > (v) && (v) * ATTN__LANES % 16 == 0) { \
        ATTN__FETCH((const unsigned short *)p->next + (v) * ATTN__LANES / 16 * p->panel); \
    }
    if (s % 2 == 0) { ATTN__EIGHT(ATTN__FETCH_LINE) }      /* two steps of 16 bits are one line */
#undef ATTN__FETCH_LINE
    p->next = ATTN__FN(value_at)(how, p->next, p->step);
}

/* Moves the operands on by n steps. */
ATTN__TEMPLATE void ATTN__FN(tile_move)(const int how, const int rows, const int layout,
                                        const int n, ATTN__FN(operands) *p)
{
    p->a[0] += n;
    p->a[1] += n;
    p->a[2] += n;
    p->a[3] += n;
    if (layout == ATTN__FN(PANELS)) p->b = ATTN__FN(value_at)(how, p->b, n * 16);
    else if (rows > 1) p->b = ATTN__FN(value_at)(how, p->b, n * p->step);
}

ATTN__TEMPLATE void ATTN__FN(tile)(const int how, const int rows, const int vecs, const int layout,
                                   const attn__gemm *g, int row, ATTN__FN(operands) p)
{
    /* steps of one pass of the loop: 2, 4, or 8 */
    const int many = how != ATTN_F32 && rows > 1 ? 2 : rows == 3 || rows == 8 ? 2
                   : rows > 1 && layout == ATTN__FN(PANELS) ? 8 : 4;
    attn__vec c[24], a, b;
    const ptrdiff_t c_row = g->c_row;
    int t = g->depth;
    p.a[1] += 3 * p.row;
    p.a[2] += 6 * p.row;
    p.a[3] += 9 * p.row;
#define ATTN__START(r, v) \
    if ((r) > 0 && (v) == 0) ATTN__NEXT_ROW(p.from, p.from_row); \
    c[(r) * vecs + (v)] = attn__vload(p.from + (v) * p.vec);
    ATTN__CHAINS(ATTN__START)
#undef ATTN__START
#define ATTN__PREFETCH(s) ATTN__FN(tile_fetch)(how, rows, vecs, s, &p);
#define ATTN__STEP(s) ATTN__FN(tile_step)(how, rows, vecs, layout, s, c, &p);
    for (; layout < ATTN__FN(LISTED) && t >= many; t -= many) {
        if (p.next) {
            ATTN__REPEAT(many, ATTN__PREFETCH)
        }
        if (rows > 1) ATTN__HIDE_ORIGIN(p.row);
        if (rows > 2) ATTN__HIDE_ORIGIN(p.row2);
        ATTN__HIDE_ORIGIN(p.a[0]);
        if (rows > 3) ATTN__HIDE_ORIGIN(p.a[1]);
        if (rows > 6) ATTN__HIDE_ORIGIN(p.a[2]);
        if (rows > 9) ATTN__HIDE_ORIGIN(p.a[3]);
        ATTN__REPEAT(many, ATTN__STEP)
        ATTN__FN(tile_move)(how, rows, layout, many, &p);
    }
#undef ATTN__PREFETCH
    for (; t > 0; t--) {
        ATTN__STEP(0)
        ATTN__FN(tile_move)(how, rows, layout, 1, &p);
    }
#undef ATTN__STEP
#define ATTN__FOLD(r, v) \
    if ((v) == 0) { \
        if ((r) > 0) ATTN__NEXT_ROW(to, c_row); \
        a = attn__vset(fold_a[r]); \
        b = attn__vset(fold_b[r]); \
    } \
    c[(r) * vecs + (v)] = attn__vfma(attn__vload(to + (v) * p.vec), a, \
                                     attn__vmul(c[(r) * vecs + (v)], b));
#define ATTN__STORE(r, v) \
    if ((r) > 0 && (v) == 0) ATTN__NEXT_ROW(p.to, c_row); \
    attn__vstore(p.to + (v) * p.vec, c[(r) * vecs + (v)]);
    if (g->fold_a) {
        const float *const fold_a = g->fold_a + row, *const fold_b = g->fold_b + row, *to = p.to;
        ATTN__CHAINS(ATTN__FOLD)
    }
    ATTN__CHAINS(ATTN__STORE)
#undef ATTN__FOLD
#undef ATTN__STORE
}
#undef ATTN__CHAINS
#undef ATTN__SIX
#undef ATTN__NEXT_ROW
#undef ATTN__ROW

/* The tiles: X(rows, vectors, layout, applies). The first that applies to the next rows and columns
   runs. With 16 lanes, those of one vector are for a single last panel, which two would compute
   twice. Heights are chosen so that no single row is left. Five rows at once take 0.67 of the time
   of 3 and 2. With 16 lanes, four panels of floats, each a stream of memory, take 0.93 to 1 of the
   time of eight over a cache. */
#define ATTN__ONE ATTN__LANES == 16 && columns == 16
#define ATTN__TILES(X) \
    X(12, 1, ANY, ATTN__ONE) \
    X(8, 1, ANY, ATTN__ONE && how == ATTN_F32) \
    X(7, 1, ANY, ATTN__ONE && how == ATTN_F32) \
    X(6, 1, ANY, ATTN__ONE && how == ATTN_F32) \
    X(5, 1, ANY, ATTN__ONE && how == ATTN_F32) \
    X(12, 2, ANY, 1) \
    X(8, 2, ANY, 1) \
    X(7, 2, ANY, 1) \
    X(6, 2, PANELS, ATTN__LANES == 8 && how == ATTN_F32 && panels) \
    X(6, 2, ANY, 1) \
    X(5, 2, ANY, 1) \
    X(4, 2, ANY, 1) \
    X(3, 2, ANY, 1) \
    X(2, 4, ANY, g->rows == 2 && columns >= 4 * ATTN__LANES) \
    X(2, 2, ANY, 1) \
    X(1, 8, PANELS, columns >= 8 * ATTN__LANES && panels && (ATTN__LANES < 16 || how != ATTN_F32)) \
    X(1, 8, ROWS, columns >= 8 * ATTN__LANES && !panels) \
    X(1, 4, ANY, columns >= 4 * ATTN__LANES) \
    X(1, 2, ANY, 1)

/* The height of the next tile by the rows left; with more than 13, ATTN__ROWS. */
static const unsigned char ATTN__FN(heights)[14] = {
#if ATTN__ROWS == 12
    0, 1, 2, 3, 4, 5, 6, 7, 8, 5, 5, 6, 12, 7
#else
    0, 1, 2, 3, 4, 5, 6, 4, 4, 5, 5, 6, 6, 6
#endif
};

/* Runs the tile of this height at row r and column x. Returns its columns. */
ATTN__TEMPLATE int ATTN__FN(tile_at)(const int how, const int single, int panels, int height,
                                     const attn__gemm *g, int r, int x, const void *b, int columns)
{
    const ATTN__FN(operands) p = ATTN__FN(operands_at)(how, single, g, r, x, b);
#define ATTN__TRY_TILE(rows, vecs, layout, applies) \
    if ((rows) <= ATTN__ROWS && single == ((rows) == 1) && height == (rows) && \
        (how != ATTN_Q8 || (rows) == 1 || (rows) == 3 || (rows) == 4) && (applies)) { \
        ATTN__FN(tile)(how, rows, vecs, ATTN__FN(layout), g, r, p); \
        columns = (vecs) * ATTN__LANES; \
    } else
    ATTN__TILES(ATTN__TRY_TILE) { }
#undef ATTN__TRY_TILE
    return columns;
}

/* The product, without a last panel that exists in part. */
ATTN__TEMPLATE void ATTN__FN(gemm_how)(const int how, const attn__gemm *g)
{
    const int width = g->n_panels * 16 - (g->last_columns ? 16 : 0);
    const int panels = how != ATTN_Q8 && g->b_step == 16;
    const void *b = g->b;
    int r = 0, x = 0, height, columns = 0;
    ATTN_ASSERT(g->b_step == 16 || g->b_panel == 16);
    if (g->rows == 1 || (how == ATTN_Q8 && g->rows == 2) || g->b_row) {
        /* Row by row, all columns of each: a single row, rows with separate right-hand sides, and
           two rows of 8 bits. */
        for (; r < g->rows; r++, b = (const char *)b + g->b_row)
            for (x = 0; x < width; x += columns)
                columns = ATTN__FN(tile_at)(how, 1, panels, 1, g, r, x, b, width - x);
        return;
    }
    /* All rows against two vectors of columns, which stay in L1. */
    for (; x < width; x += columns)
        for (r = 0; r < g->rows; r += height) {
            const int left = g->rows - r;
            height = left > 13 ? ATTN__ROWS : ATTN__FN(heights)[left];
            columns = ATTN__FN(tile_at)(how, 0, panels, height, g, r, x, b, width - x);
        }
}

#undef ATTN__TILES
#undef ATTN__ONE
static ATTN__NOINLINE ATTN__TARGET void ATTN__FN(gemm_floats)(const attn__gemm *g)
{
    ATTN__FN(gemm_how)(ATTN_F32, g);
}

#if ATTN__HAS_BF16                        /* otherwise no product reads 16 bits */
static ATTN__NOINLINE ATTN__TARGET void ATTN__FN(gemm_stored)(const attn__gemm *g)
{
    if (g->stored == ATTN_F16) ATTN__FN(gemm_how)(ATTN_F16, g);
    else ATTN__FN(gemm_how)(ATTN_BF16, g);
}
#endif

/* Computes columns of each row from x on: one panel, or with a list VECS vectors, if they exist.
   Only g->last_columns of the last panel may exist: rows of V that end inside a panel are read in
   place, in 0.67 to 0.8 of the time of packing. Returns how many columns it has computed. */
ATTN__V int ATTN__FN(part_how)(const int how, const attn__gemm *g, const int *list, int x)
{
    enum { VECS = ATTN__LANES == 16 ? 4 : 8 };
    const int left = g->last_columns && x + 16 == g->n_panels * 16 ? g->last_columns : 16;
    const int whole = g->n_panels * 16 - (g->last_columns ? 16 : 0);
    const int vecs = list && x + VECS * ATTN__LANES <= whole;
    const void *b = g->b;
    int r;
    for (r = 0; r < g->rows; r++, b = (const char *)b + g->b_row) {
        ATTN__FN(operands) p = ATTN__FN(operands_at)(how, 1, g, r, x, b);
        p.row = p.row2 = 0;
        p.next = NULL;
        p.list = list;
        if (vecs) {
            ATTN__FN(tile)(how, 1, VECS, ATTN__FN(LISTED), g, r, p);
            continue;
        }
        p.some[0] = attn__first(left);
        p.some[1] = attn__first(left - ATTN__LANES);
        p.some[2] = attn__first(left - 2 * ATTN__LANES);
        p.some[3] = attn__first(left - 3 * ATTN__LANES);
        ATTN__FN(tile)(how, 1, 16 / ATTN__LANES, ATTN__FN(PART), g, r, p);
    }
    return vecs ? VECS * ATTN__LANES : 16;
}

static ATTN__NOINLINE ATTN__TARGET int ATTN__FN(part)(const attn__gemm *g, const int *list, int x)
{
    if (ATTN__HAS_BF16 && g->stored == ATTN_F16) return ATTN__FN(part_how)(ATTN_F16, g, list, x);
    if (ATTN__HAS_BF16 && g->stored == ATTN_BF16) return ATTN__FN(part_how)(ATTN_BF16, g, list, x);
    if (g->stored == ATTN_Q8) return ATTN__FN(part_how)(ATTN_Q8, g, list, x);
    return ATTN__FN(part_how)(ATTN_F32, g, list, x);
}

/* Five rows and more over the same bytes: some columns are widened for all rows. */
static ATTN__NOINLINE ATTN__TARGET void ATTN__FN(gemm_bytes)(const attn__gemm *g)
{
    const signed char *b = (const signed char *)g->b;
    attn__gemm some = *g;
    int left;
    if (g->rows <= 4 || g->b_row) { ATTN__FN(gemm_how)(ATTN_Q8, g); return; }
    ATTN_ASSERT(!g->from);        /* 8 bits in place: one run, or rows select */
    some.b = g->room;
    some.b_step = 16;
    some.b_panel = (int)ATTN__CHUNK * 16;
    some.stored = ATTN_F32;
    some.prefetch = NULL;
    for (left = g->n_panels; left > 0; left -= some.n_panels) {
        some.n_panels = attn__min(left, ATTN__WIDENED_PANELS);
        ATTN__FN(pack_bytes)(g->room, b, g->b_step, g->depth, some.n_panels);
        ATTN__FN(gemm_floats)(&some);
        b += 16 * some.n_panels;
        some.c += 16 * some.n_panels;
    }
}

static ATTN__TARGET void ATTN__FN(gemm)(const attn__gemm *g)
{
    if (g->stored == ATTN_Q8) ATTN__FN(gemm_bytes)(g);
    else
#if ATTN__HAS_BF16
    if (g->stored != ATTN_F32) ATTN__FN(gemm_stored)(g);
    else
#endif
    ATTN__FN(gemm_floats)(g);
    if (g->last_columns) (void)ATTN__FN(part)(g, NULL, g->n_panels * 16 - 16);
}

/* The same product, but row r has only the steps t with visible[r*128 + t] != 0: a hidden key is
 * not multiplied by 0 but left out. For rows with hidden keys over V that may be uninitialised or
 * not finite. */
static ATTN__TARGET void ATTN__FN(select)(const attn__gemm *g, const float *visible,
                                          const unsigned char *step, int steps)
{
    float p[ATTN__CHUNK];
    int list[ATTN__CHUNK], r, t, x;
    attn__gemm one = *g;                          /* the product of one row over its visible keys */
    one.a = p;
    one.rows = 1;
    one.a_row = 0;
    one.prefetch = NULL;
    for (r = 0; r < g->rows; r++, visible += ATTN__CHUNK) {
        int n = 0;
        /* p: the row's probabilities of its visible keys; list: their steps. Without branches,
           which would be mispredicted: the next key overwrites a hidden one. */
        for (t = 0; t < (step ? steps : g->depth); t++) {
            const int j = step ? step[t] : t;
            p[n] = g->a[r * g->a_row + j];
            list[n] = j;
            n += visible[j] > 0.0f;
        }
        /* from, c and the factors of this row only */
        one.depth = n;
        one.c = g->c + r * g->c_row;
        if (g->from) one.from = g->from + r * g->from_row;
        if (g->fold_a) { one.fold_a = g->fold_a + r; one.fold_b = g->fold_b + r; }
        for (x = 0; x < g->n_panels * 16; ) x += ATTN__FN(part)(&one, list, x);
    }
}

/* ---- scores to probabilities: hidden keys ---------------------------------------------------- */
/* Returns the lanes whose keep byte is 0, for the first n bytes of a vector. Later lanes count as
   0. */
ATTN__V attn__vmask ATTN__FN(hidden_keep)(const unsigned char *keep, int n)
{
    unsigned char part[ATTN__LANES] = { 0 };         /* the bytes may end with the last key */
    if (n >= ATTN__LANES) return attn__zero_bytes(keep);
    if (n > 0) memcpy(part, keep, (size_t)n);
    return attn__zero_bytes(part);
}

/* Returns rel_bias for n keys from j on: in the table, or in `room` with the ends repeated. */
ATTN__V const float *ATTN__FN(rel_cells)(const attn__row *row, int j, int n, float *room)
{
    const int from = row->rel_first + j, extent = row->rel_extent;
    int i;
    if (from >= -extent && from + n - 1 <= extent) return row->rel + from;
    if (from >= extent || from + n - 1 <= -extent) {
        const attn__vec end = attn__vset(row->rel[from >= extent ? extent : -extent]);
        for (i = 0; i < n; i += ATTN__LANES) attn__vstore(room + i, end);
    } else {
        for (i = 0; i < n; i++) room[i] = row->rel[attn__clamp(from + i, -extent, extent)];
    }
    return room;
}

/* Adds rel_bias and the arrays of one vector of keys, `left` of which exist: numbers are added to
 * x; -inf and keep bytes of 0 hide. */
ATTN__V attn__vec ATTN__FN(add_arrays)(const int whole, const attn__softmax *f,
                                       const attn__row *row,
                                       int j, int left, attn__vec x, attn__vmask *hidden)
{
    const attn__vec none = attn__vset(-attn__inf());
    if (row->rel) {
        float room[ATTN__LANES];
        const attn__vec y = attn__vload(ATTN__FN(rel_cells)(row, j, ATTN__LANES, room));
        *hidden = attn__or_mask(*hidden, attn__same_bits(y, none));
        x = attn__vadd(x, y);
    }
    /* A mask is read once, so no CPU cache holds it: a part of a later row is prefetched. */
#define ATTN__ADD(name, type, heads) \
    if (row->name) { \
        const float *from = row->name + j; \
        const attn__vec y = whole ? attn__vload(from) : attn__load_part(from, left); \
        if (whole && f->prefetch_stride && ATTN__OF_##name == f->prefetch && j % 16 < ATTN__LANES) \
            ATTN__FETCH(from + f->prefetch_stride); \
        *hidden = attn__or_mask(*hidden, attn__same_bits(y, none)); \
        x = attn__vadd(x, y); \
    }
    ATTN__ADDED(ATTN__ADD)
#undef ATTN__ADD
    if (row->keep) *hidden = attn__or_mask(*hidden, ATTN__FN(hidden_keep)(row->keep + j, left));
    return x;
}

/* Returns which of the first n <= 64 keys have -inf: bit j for key j. */
ATTN__V unsigned long long ATTN__FN(hidden_floats)(const float *cells, int n)
{
    const attn__vec none = attn__vset(-attn__inf());
    unsigned long long hidden = 0;
    int j = 0;
    for (; j + 2 * ATTN__LANES <= n; j += 2 * ATTN__LANES) {
        const attn__vec a = attn__vload(cells + j), b = attn__vload(cells + j + ATTN__LANES);
        const unsigned long long high = attn__mask_bits(attn__same_bits(b, none));
        hidden |= (attn__mask_bits(attn__same_bits(a, none)) | high << ATTN__LANES) << j;
    }
    for (; j < n; j += ATTN__LANES) {
        const attn__vec a = attn__load_part(cells + j, n - j);
        hidden |= (unsigned long long)attn__mask_bits(attn__same_bits(a, none)) << j;
    }
    return hidden;
}

/* As hidden_floats, for keep bytes that are 0. */
ATTN__V unsigned long long ATTN__FN(hidden_bytes)(const unsigned char *keep, int n)
{
    unsigned long long hidden = 0;
    int j = 0;
    for (; j + ATTN__LANES <= n; j += ATTN__LANES)
        hidden |= (unsigned long long)attn__mask_bits(attn__zero_bytes(keep + j)) << j;
    if (j < n)
        hidden |= (unsigned long long)attn__mask_bits(ATTN__FN(hidden_keep)(keep + j, n - j)) << j;
    return hidden;
}

/* Sets the keys among the first n of a chunk that mask, bias, keep and rel_bias leave visible to a
   row. Bits are collected in a register: reading them back from partial stores would stall until
   all of this row's elements have arrived, and delay those of the next. */
static ATTN__TARGET void ATTN__FN(find_visible)(const attn__row *row, int n, attn__keys *seen)
{
#define ATTN__CELLS_OF(name, type, heads) row->name,
    const float *cells[] = { ATTN__ADDED(ATTN__CELLS_OF) NULL };
#undef ATTN__CELLS_OF
    float room[64];
    int x, y;
    for (x = 0; x < 2; x++) {
        const int j = 64 * x, left = attn__min(n - j, 64);
        unsigned long long hidden = 0;
        if (row->keep && left > 0) hidden |= ATTN__FN(hidden_bytes)(row->keep + j, left);
        for (y = 0; y < ATTN__ALL_ADDED; y++)
            if (cells[y] && left > 0) hidden |= ATTN__FN(hidden_floats)(cells[y] + j, left);
        if (row->rel && left > 0)
            hidden |= ATTN__FN(hidden_floats)(ATTN__FN(rel_cells)(row, j, 64, room), left);
        seen->word[x] = ~hidden;
    }
}

/* Applies softcap. */
ATTN__V attn__vec ATTN__FN(cap)(const attn__softmax *f, attn__vec x)
{
    if (f->softcap > 0.0f) {
        /* The product must not be fused into a later sum: adding 0 makes it a separate fma. */
        const attn__vec cap = attn__vset(f->softcap);
        x = attn__vfma(cap, ATTN__FN(vtanh)(attn__vdiv(x, cap)), attn__vset(0.0f));
    }
    return x;
}

/* Adds ALiBi for the keys from j on. */
ATTN__V attn__vec ATTN__FN(slope)(const attn__softmax *f, const attn__row *row, int j, attn__vec x)
{
    if (f->alibi) {
        const attn__vec zero = attn__vset(0.0f);
        const attn__vec ahead = attn__vsub(ATTN__FN(vindex)(j), attn__vset(row->distance));
        const attn__vec away = attn__vmax(ahead, attn__vsub(zero, ahead));
        x = attn__vfma(attn__vset(row->slope), attn__vsub(zero, away), x);
    }
    return x;
}

/* Returns which of the keys from j on are outside lo .. hi - 1. */
ATTN__V attn__vmask ATTN__FN(outside)(int j, int lo, int hi)
{
    const attn__vec at = ATTN__FN(vindex)(j);
    return attn__or_mask(attn__vless(at, attn__vset((float)lo)),
                         attn__vless(attn__vset((float)(hi - 1)), at));
}

/* Returns one vector of a row's scores, at key j of the chunk, with hidden keys at -inf. Sets
 * visible (1 visible, 0 hidden), and sets `any` if a key is visible. whole: all these keys exist
 * and are visible by position, and there is neither softcap nor ALiBi, so only mask, bias, keep and
 * rel_bias are applied. */
ATTN__V attn__vec ATTN__FN(hide)(const int whole, const attn__softmax *f, const attn__row *row,
                                 const float *s, float *visible, int j, attn__vec *any)
{
    const attn__vec none = attn__vset(-attn__inf()), one = attn__vset(1.0f);
    /* keys from here on; nothing after them is read */
    const int left = whole ? ATTN__LANES : f->n - j;
    attn__vmask hidden = whole ? attn__vless(one, one) /* false */
                               : ATTN__FN(outside)(j, row->lo, row->hi);
    attn__vec x = attn__vload(s + j), seen;
    if (!whole) x = ATTN__FN(slope)(f, row, j, ATTN__FN(cap)(f, x));
    x = ATTN__FN(add_arrays)(whole, f, row, j, left, x, &hidden);
    x = attn__choose(hidden, none, x);
    seen = attn__zero_where(hidden, one);
    if (visible) attn__vstore(visible + j, seen);
    *any = attn__vmax(*any, seen);
    return x;
}

/* As `hide`, for a panel of keys that exist, are visible by position, and have one array of
 * numbers: adds `cells`. Sets the lanes of `any` that see a key to 1. With only `hide`, calls with
 * a mask take 1.09 times as long. */
ATTN__V void ATTN__FN(hide_panel)(const float *cells, float *s, attn__vec *any)
{
    const attn__vec none = attn__vset(-attn__inf()), one = attn__vset(1.0f);
    int i;
    for (i = 0; i < ATTN__PANEL; i += ATTN__LANES) {
        const attn__vec y = attn__vload(cells + i);
        const attn__vmask hidden = attn__same_bits(y, none);
        attn__vstore(s + i, attn__choose(hidden, none, attn__vadd(attn__vload(s + i), y)));
        *any = attn__choose(hidden, *any, one);
    }
}

/* For a row with arrays or other terms: hides keys among j .. end - 1 of s. */
ATTN__V void ATTN__FN(hide_row)(const attn__softmax *f, int r, int j, int end)
{
    const attn__row here = attn__row_at(f->row + attn__row_of(f, r), f->first_key, f->lo, f->hi,
                                        f->n);
    const attn__row *row = &here;
    const float *cells = NULL;            /* the array of numbers, if the row has only one */
    const int lo = f->simple ? row->lo : end;        /* keys lo .. row->hi - 1 take the fast path */
    float *s = f->scores + r * ATTN__CHUNK;
    float *visible = f->visible ? f->visible + r * ATTN__CHUNK : NULL;
    attn__vec any = attn__vset(0.0f), x;
    int arrays = visible || row->keep || row->rel ? 2 : 0;       /* 2: `hide` is needed */
#define ATTN__COUNT_ADDED(name, type, heads) if (row->name) { cells = row->name; arrays++; }
    ATTN__ADDED(ATTN__COUNT_ADDED)
#undef ATTN__COUNT_ADDED
    while (j < end) {
        const int whole = j >= lo && j + ATTN__LANES <= row->hi;
        if (whole && arrays == 1 && j + ATTN__PANEL <= row->hi) {
            ATTN__FETCH(cells + j + f->prefetch_stride);           /* a mask is read once */
            ATTN__FN(hide_panel)(cells + j, s + j, &any);
            j += ATTN__PANEL;
            continue;
        }
        /* Two copies of `hide`: for most vectors the ends of the range need no test. */
        if (whole) x = ATTN__FN(hide)(1, f, row, s, visible, j, &any);
        else x = ATTN__FN(hide)(0, f, row, s, visible, j, &any);
        attn__vstore(s + j, x);
        j += ATTN__LANES;
    }
    if (attn__mask_bits(attn__vless(attn__vset(0.0f), any))) f->seen[attn__row_of(f, r)] = 1;
}

/* The plain case, a range of keys: hides keys outside. */
ATTN__V void ATTN__FN(hide_range)(const attn__softmax *f, int r, int j, int end)
{
    float *s = f->scores + r * ATTN__CHUNK;
    float *visible = f->visible ? f->visible + r * ATTN__CHUNK : NULL;
    int lo = 0, hi = f->n;
    if (!f->all) attn__row_range(f->row + attn__row_of(f, r), f->first_key, f->lo, f->hi, &lo, &hi);
    if (lo < hi) f->seen[attn__row_of(f, r)] = 1;
    while (j < end) {
        if (!visible && j >= lo && j + ATTN__LANES <= hi) {
            j += (hi - j) & -ATTN__LANES;            /* all are visible and stay unchanged */
        } else {
            const attn__vmask hidden = ATTN__FN(outside)(j, lo, hi);
            attn__vstore(s + j, attn__choose(hidden, attn__vset(-attn__inf()), attn__vload(s + j)));
            if (visible) attn__vstore(visible + j, attn__zero_where(hidden, attn__vset(1.0f)));
            j += ATTN__LANES;
        }
    }
}

/* Adds `y` to the vector of scores at s. */
ATTN__V void ATTN__FN(raise)(float *s, attn__vec y)
{
    attn__vstore(s, attn__vadd(attn__vload(s), y));
}

/* Adds a rel_bias that hides no key of a range: to the vectors of keys before its table, to those
 * with keys inside, and to those after it. */
ATTN__V void ATTN__FN(add_rel)(const attn__softmax *f, int r, int j, int end)
{
    const attn__row here = attn__row_at(f->row + attn__row_of(f, r), f->first_key, f->lo, f->hi,
                                        f->n);
    const attn__row *row = &here;
    const int extent = row->rel_extent, from = row->rel_first;
    attn__vec before, after;
    float *s = f->scores + r * ATTN__CHUNK, room[ATTN__LANES];
    int stop = attn__min(end, -extent - from + 1);
    if (!row->rel) return;                           /* it is 0 over this chunk */
    before = attn__vset(row->rel[-extent]);
    after = attn__vset(row->rel[extent]);
    for (; j + ATTN__LANES <= stop; j += ATTN__LANES)
        ATTN__FN(raise)(s + j, before);
    for (stop = attn__min(end, extent - from + 1); j < stop; j += ATTN__LANES) {
        const float *cells = ATTN__FN(rel_cells)(row, j, ATTN__LANES, room);
        ATTN__FN(raise)(s + j, attn__vload(cells));
        for (; j + 2 * ATTN__LANES <= stop; j += ATTN__LANES) {
            cells = row->rel + from + j + ATTN__LANES;
            ATTN__FN(raise)(s + j + ATTN__LANES, attn__vload(cells));
        }
    }
    for (; j < end; j += ATTN__LANES) ATTN__FN(raise)(s + j, after);
}

/* ---- scores to probabilities: exp and its sum ------------------------------------------------ */
/* One panel of a row: with exps 1, p = exp(s - top) in place, and adds p to the sums of the lanes;
 * with exps 0, includes s in their maxima. */
ATTN__V void ATTN__FN(reduce_panel)(const int exps, float *s, attn__vec top, attn__vec *lanes)
{
#define ATTN__VEC(i) \
    if (ATTN__PANEL / ATTN__LANES > (i)) { \
        attn__vec x = attn__vload(s + (i) * ATTN__LANES); \
        if (exps) { \
            x = ATTN__FN(vexp)(attn__vsub(x, top)); \
            attn__vstore(s + (i) * ATTN__LANES, x); \
            lanes[i] = attn__vadd(lanes[i], x); \
        } else lanes[i] = attn__vmax(lanes[i], x); \
    }
    ATTN__VEC(0) ATTN__VEC(1) ATTN__VEC(2) ATTN__VEC(3)
#undef ATTN__VEC
}

/* With exps 0, sets m of 1 or 4 rows to the maximum of s over the keys of some runs. With exps 1,
 * p = exp(s - m) in place, and l becomes the sum: 16 lanes (lane = key mod 16), then their tree.
 * Four rows at once take 0.86 of the time of one after the other, because latencies between two
 * rows overlap. */
ATTN__V void ATTN__FN(reduce)(const int rows, const int exps, const attn__softmax *f, int first)
{
    const attn__vec none = attn__vset(-attn__inf());
    const attn__runs *runs = &f->runs;
    float *s = f->scores + first * ATTN__CHUNK, *m = f->m + first, *l = f->l + first;
    attn__vec top[4], lanes[4][4], x;
    int i, j;
#define ATTN__EACH_ROW(do) do(0) if (rows > 1) { do(1) do(2) do(3) }
#define ATTN__BEGIN(r) \
    x = exps ? attn__vset(m[r]) : none; \
    top[r] = attn__zero_where(attn__same_bits(x, none), x);      /* -inf - -inf would be NaN */ \
    lanes[r][0] = lanes[r][1] = lanes[r][2] = lanes[r][3] = exps ? attn__vset(0.0f) : none;
#define ATTN__ROW(r) \
    ATTN__FN(reduce_panel)(exps, s + (r) * ATTN__CHUNK + j, top[r], lanes[r]);
    /* the tree: lanes 8 apart, then 4 apart, if they are in different vectors */
#define ATTN__JOIN(op, r, i, k) lanes[r][i] = op(lanes[r][i], lanes[r][k]);
#define ATTN__TREE(op, r) \
    if (ATTN__LANES < 8) { ATTN__JOIN(op, r, 0, 2) ATTN__JOIN(op, r, 1, 3) } \
    if (ATTN__LANES < 16) ATTN__JOIN(op, r, 0, 1)
#define ATTN__END(r) \
    if (exps) { ATTN__TREE(attn__vadd, r) l[r] = attn__sum_lanes(lanes[r][0]); } \
    else { ATTN__TREE(attn__vmax, r) m[r] = attn__max_lane(lanes[r][0]); }
    ATTN__EACH_ROW(ATTN__BEGIN)
    for (i = 0; i < runs->n; i++) {
        const int end = runs->hi[i];
        for (j = runs->lo[i]; j < end; j += ATTN__PANEL) { ATTN__EACH_ROW(ATTN__ROW) }
    }
    ATTN__EACH_ROW(ATTN__END)
#undef ATTN__EACH_ROW
#undef ATTN__BEGIN
#undef ATTN__ROW
#undef ATTN__JOIN
#undef ATTN__TREE
#undef ATTN__END
}

ATTN__V void ATTN__FN(reduce_rows)(const int exps, const attn__softmax *f)
{
    int r = 0;
    /* With 4 lanes and 16 registers a row has enough chains. */
    if (ATTN__LANES > 4 || ATTN__ROWS == 12)
        for (; r + 4 <= f->rows; r += 4) ATTN__FN(reduce)(4, exps, f, r);
    for (; r < f->rows; r++) ATTN__FN(reduce)(1, exps, f, r);
}

/* The softmax of some rows of one chunk: first every maximum, then every exp, so that no row waits
 * for its maximum. */
static ATTN__TARGET void ATTN__FN(softmax)(const attn__softmax *f)
{
    int r, i;
    for (i = 0; i < f->runs.n; i++) {
        const int j = f->runs.lo[i], end = f->runs.hi[i];
        for (r = 0; r < f->rows; r++) {
            if (f->per_key) ATTN__FN(hide_row)(f, r, j, end);
            else {
                if (f->rel) ATTN__FN(add_rel)(f, r, j, end);
                ATTN__FN(hide_range)(f, r, j, end);
            }
        }
    }
    ATTN__FN(reduce_rows)(0, f);
    ATTN__FN(reduce_rows)(1, f);
}

/* ---- chunks to results ----------------------------------------------------------------------- */
static ATTN__TARGET void ATTN__FN(fold)(float *M, float *L, const float *m, const float *l,
                                        float *a, float *b, int n)
{
    const attn__vec none = attn__vset(-attn__inf()), one = attn__vset(1.0f);
    attn__vec L1;
    int r;
    for (r = 0; r < n; r += ATTN__LANES) {
        const attn__vec M0 = attn__vload(M + r), m0 = attn__vload(m + r), M1 = attn__vmax(M0, m0);
        const attn__vmask empty = attn__same_bits(M1, none);         /* -inf - -inf would be NaN */
        /* both factors are exp of a number <= 0, and one of them is exp(0) = 1 exactly */
        const attn__vec fa = attn__choose(empty, one, ATTN__FN(vexp)(attn__vsub(M0, M1)));
        const attn__vec fb = attn__choose(empty, one, ATTN__FN(vexp)(attn__vsub(m0, M1)));
        attn__vstore(a + r, fa);
        attn__vstore(b + r, fb);
        L1 = attn__vfma(attn__vload(L + r), fa, attn__vmul(attn__vload(l + r), fb));
        ATTN__FN(store_part)(L + r, L1, n - r);
        ATTN__FN(store_part)(M + r, M1, n - r);
    }
}

/* x: the outputs of a chunk; x NULL: those of a sink. */
static ATTN__TARGET void ATTN__FN(fold_out)(float *o, const float *x, float a, float b, int n)
{
    const attn__vec fa = attn__vset(a), fb = attn__vset(b);
    int i;
    for (i = 0; i < n; i += ATTN__LANES) {
        const attn__vec more = x ? attn__vmul(attn__load_part(x + i, n - i), fb) : attn__vset(0.0f);
        ATTN__FN(store_part)(o + i, attn__vfma(attn__load_part(o + i, n - i), fa, more), n - i);
    }
}

static ATTN__TARGET void ATTN__FN(finish)(const attn__rowref *row, const float *o, ptrdiff_t o_row,
                                          const float *L, int rows, int n)
{
    int r, i;
    for (r = 0; r < rows; r++, o += o_row) {
        const attn__vec d = attn__vset(L[r]);
        float *out = row[r].out;
        for (i = 0; i + ATTN__LANES <= n; i += ATTN__LANES)
            attn__vstore(out + i, ATTN__FN(vclean)(attn__vdiv(attn__vload(o + i), d)));
        if (i < n)
            ATTN__FN(store_part)(out + i, ATTN__FN(vclean)(attn__vdiv(attn__vload(o + i), d)),
                                 n - i);
    }
}

/* Writes the weights of row r of a chunk: its scores at this stage, and -inf where hidden; or
 * probabilities, and 0 where hidden. */
static ATTN__TARGET void ATTN__FN(weigh)(const attn__softmax *f, int r, attn_stage stage,
                                         float *weights, float M, float L)
{
    const attn__vec none = attn__vset(-attn__inf()), m = attn__vset(M), d = attn__vset(L);
    const attn__row here = attn__row_at(f->row + attn__row_of(f, r), f->first_key, f->lo, f->hi,
                                        f->n);
    const attn__row *row = &here;
    const float *s = f->scores + r * ATTN__CHUNK;
    int i, j;
    for (i = 0; i < f->runs.n; i++)
        for (j = f->runs.lo[i]; j < attn__min(f->runs.hi[i], f->n); j += ATTN__LANES) {
            const int left = f->n - j;
            attn__vmask hidden = ATTN__FN(outside)(j, row->lo, row->hi);
            attn__vec x = attn__vload(s + j);
            if (stage != ATTN_SCORES_RAW) x = ATTN__FN(cap)(f, x);
            if (stage == ATTN_SCORES_BIASED || stage == ATTN_PROBABILITIES) {
                x = ATTN__FN(slope)(f, row, j, x);
                x = ATTN__FN(add_arrays)(0, f, row, j, left, x, &hidden);
            }
            if (stage == ATTN_PROBABILITIES)
                x = attn__zero_where(hidden, ATTN__FN(vclean)(attn__vdiv(
                        ATTN__FN(vexp)(attn__vsub(x, m)), d)));
            else
                x = ATTN__FN(vclean)(attn__choose(hidden, none, x));
            ATTN__FN(store_part)(weights + j, x, left);
        }
}

#ifndef ATTN_NO_LAYERS
/* ---- norms and activations ------------------------------------------------------------------- */
#if ATTN__LANES == 16
#define ATTN__WIDES(do) { do(0) do(1) }
#elif ATTN__LANES == 8
#define ATTN__WIDES(do) { do(0) do(1) do(2) do(3) }
#else
#define ATTN__WIDES(do) { ATTN__EIGHT(do) }
#endif

/* attn__norm_lanes, 16 values at a time. */
ATTN__V double ATTN__FN(norm_sum)(const float *x, int n, const int squares)
{
    double lane[16] = { 0 };
    attn__wide s[8];                      /* the 16 lanes: 8, 4 or 2 vectors by width */
    int i;
#define ATTN__AT(k) (k) * (ATTN__LANES / 2)
#define ATTN__LOAD(k) s[k] = attn__wide_load(lane + ATTN__AT(k));
#define ATTN__ADD(k) s[k] = attn__wide_add(s[k], x + i + ATTN__AT(k), squares);
#define ATTN__STORE(k) attn__wide_store(lane + ATTN__AT(k), s[k]);
    ATTN__WIDES(ATTN__LOAD)
    for (i = 0; i + 16 <= n; i += 16) ATTN__WIDES(ATTN__ADD)
    ATTN__WIDES(ATTN__STORE)
#undef ATTN__AT
#undef ATTN__LOAD
#undef ATTN__ADD
#undef ATTN__STORE
    return attn__norm_lanes(lane, x, i, n, squares);
}

/* y = (x - high) - low, of n values, at most ATTN__LANES. */
ATTN__V void ATTN__FN(centre)(float *y, const float *x, int n, float high, float low)
{
    const attn__vec d = attn__vsub(attn__load_part(x, n), attn__vset(high));
    ATTN__FN(store_part)(y, attn__vsub(d, attn__vset(low)), n);
}

/* y = x * root * weight + bias, of values i .. i + n-1, at most ATTN__LANES. */
ATTN__V void ATTN__FN(norm_part)(const attn__norm_row *f, const float *x, float root, int i, int n)
{
    const attn__vec w = f->weight ? attn__load_part(f->weight + i, n) : attn__vset(1.0f);
    const attn__vec b = f->bias ? attn__load_part(f->bias + i, n) : attn__vset(0.0f);
    const attn__vec normal = attn__vmul(attn__load_part(x + i, n), attn__vset(root));
    ATTN__FN(store_part)(f->y + i, ATTN__FN(vclean)(attn__vfma(normal, w, b)), n);
}

static ATTN__TARGET void ATTN__FN(norm)(const attn__norm_row *row)
{
    const attn__norm_row f = *row;        /* in registers: stores to y could change *row */
    const int whole = f.n - f.n % ATTN__LANES;
    const float *x = f.x;
    double squares;
    float root;
    int i;
    if (f.kind == ATTN_NORM_LAYER) {
        const double mean = ATTN__FN(norm_sum)(x, f.n, 0) / f.n;
        const float high = (float)mean, low = (float)(mean - (double)high);
        for (i = 0; i < whole; i += ATTN__LANES)
            ATTN__FN(centre)(f.y + i, x + i, ATTN__LANES, high, low);
        if (i < f.n) ATTN__FN(centre)(f.y + i, x + i, f.n - i, high, low);
        x = f.y;
    }
    squares = ATTN__FN(norm_sum)(x, f.n, 1) / f.n;
    squares += (double)f.eps;
    root = (float)(1.0 / attn__wide_root(squares));
    for (i = 0; i < whole; i += ATTN__LANES) ATTN__FN(norm_part)(&f, x, root, i, ATTN__LANES);
    if (i < f.n) ATTN__FN(norm_part)(&f, x, root, i, f.n - i);
}

ATTN__V void ATTN__FN(activate_kind)(const int kind, float *y, const float *x, const float *gate,
                                     size_t n)
{
    size_t i;
    for (i = 0; i < n; i += ATTN__LANES) {
        const attn__vec a = attn__vload(x + i);
        attn__vec f = kind == ATTN_GELU ? ATTN__FN(gelu)(a)
                    : kind == ATTN_SILU ? ATTN__FN(silu)(a) : ATTN__FN(gelu_tanh)(a);
        if (gate) f = attn__vfma(f, attn__vload(gate + i), attn__vset(0.0f));
        attn__vstore(y + i, ATTN__FN(vclean)(f));
    }
}

/* Activates n values, a multiple of ATTN__LANES. */
static ATTN__NOINLINE ATTN__TARGET void ATTN__FN(activate_whole)(float *y, const float *x,
                                                                 const float *gate, size_t n,
                                                                 attn_activation kind)
{
    if (kind == ATTN_GELU) ATTN__FN(activate_kind)(ATTN_GELU, y, x, gate, n);
    else if (kind == ATTN_SILU) ATTN__FN(activate_kind)(ATTN_SILU, y, x, gate, n);
    else ATTN__FN(activate_kind)(ATTN_GELU_TANH, y, x, gate, n);
}

/* Values after the last whole vector are copied, and padded with zeros. */
static ATTN__TARGET void ATTN__FN(activate)(float *y, const float *x, const float *gate, size_t n,
                                            attn_activation kind)
{
    const size_t whole = n / ATTN__LANES * ATTN__LANES;
    const int rest = (int)(n - whole);
    float part[ATTN__LANES], gates[ATTN__LANES];
    if (whole) ATTN__FN(activate_whole)(y, x, gate, whole, kind);
    if (rest == 0) return;
    attn__vstore(part, attn__load_part(x + whole, rest));
    if (gate) attn__vstore(gates, attn__load_part(gate + whole, rest));
    ATTN__FN(activate_whole)(part, part, gate ? gates : NULL, ATTN__LANES, kind);
    ATTN__FN(store_part)(y + whole, attn__vload(part), rest);
}
#endif

#ifndef ATTN_NO_DELTA
/* ---- linear attention ------------------------------------------------------------------------ */
/* Vectors of a pass, of which d, sum and u stay in registers. */
#define ATTN__PASS (ATTN__LANES == 16 ? 2 : 4)

/* One pass over columns of a slice, from rows `from` to rows `to`. update: adds d of row t - 1 and
   writes its out. decay: decays them for row t, and sets d of this row. */
ATTN__V void ATTN__FN(delta_pass)(const attn__delta *f, int t, attn__vec *d, const int update,
                                  const int decay)
{
    const ptrdiff_t row = f->head_dim, columns = ATTN__DELTA_COLUMNS, e_step = f->e_step;
    const ptrdiff_t from_row = update ? columns : f->state_row;
    const ptrdiff_t to_row = decay ? columns : f->state_row;
    const float *next = f->k + t * row, *k = next - row * update, *q = f->q + (t - update) * row;
    const float *from = update ? f->slice : f->state, *e = f->e + (ptrdiff_t)t * f->e_row;
    float *to = decay ? f->slice : f->state, *v = f->v + t * columns;
    attn__vec sum[8], u[8], s;            /* of which ATTN__PASS are used */
    int c;
#define ATTN__ZERO(i) sum[i] = u[i] = attn__vset(0.0f);
#define ATTN__STEP(i) \
    s = attn__vload(from + (i) * ATTN__LANES); \
    if (update) s = attn__vfma(kc, d[i], s), sum[i] = attn__vfma(qc, s, sum[i]); \
    if (decay) s = attn__vmul(ec, s), u[i] = attn__vfma(kn, s, u[i]); \
    attn__vstore(to + (i) * ATTN__LANES, decay ? s : ATTN__FN(vclean)(s));
#define ATTN__OUT(i) \
    attn__vstore(v - columns + (i) * ATTN__LANES, \
                 ATTN__FN(vclean)(attn__vfma(attn__vset(f->scale), sum[i], attn__vset(0.0f))));
#define ATTN__D(i) \
    d[i] = attn__vload(v + (i) * ATTN__LANES); \
    if (!f->add) d[i] = attn__vsub(d[i], u[i]); \
    d[i] = attn__vmul(attn__vset(f->beta[t]), d[i]);
    ATTN__REPEAT(ATTN__PASS, ATTN__ZERO)
    for (c = 0; c < f->head_dim; c++, from += from_row, to += to_row, e += e_step) {
        const attn__vec kc = attn__vset(update ? k[c] : 0.0f);
        const attn__vec qc = attn__vset(update ? q[c] : 0.0f);
        const attn__vec kn = attn__vset(decay ? next[c] : 0.0f);
        const attn__vec ec = attn__vset(decay ? *e : 0.0f);
        ATTN__REPEAT(ATTN__PASS, ATTN__STEP)
    }
    if (update) { ATTN__REPEAT(ATTN__PASS, ATTN__OUT) }
    if (decay) { ATTN__REPEAT(ATTN__PASS, ATTN__D) }
#undef ATTN__ZERO
#undef ATTN__STEP
#undef ATTN__OUT
#undef ATTN__D
}

static ATTN__TARGET void ATTN__FN(delta)(const attn__delta *given)
{
    attn__delta f = *given;               /* in registers: stores could change *given */
    attn__vec d[8];                       /* of which ATTN__PASS are used */
    int t, x, i;
    for (x = 0; x < ATTN__DELTA_COLUMNS; x += ATTN__PASS * ATTN__LANES) {
        ATTN__FN(delta_pass)(&f, 0, d, 0, 1);
        for (t = 1; t < f.rows; t++) {
            for (i = 0; f.ahead[0] && i < 3; i++) {
                ATTN__FETCH(f.ahead[i] + t * f.ahead_row[i]);
                ATTN__FETCH(f.ahead[i] + t * f.ahead_row[i] + ATTN__DELTA_COLUMNS / 2);
            }
            ATTN__FN(delta_pass)(&f, t, d, 1, 1);
        }
        ATTN__FN(delta_pass)(&f, t, d, 1, 0);
        f.state += ATTN__PASS * ATTN__LANES;
        f.slice += ATTN__PASS * ATTN__LANES;
        f.v += ATTN__PASS * ATTN__LANES;
    }
}

static ATTN__TARGET void ATTN__FN(decay)(float *e, const float *g, int n)
{
    const attn__vec zero = attn__vset(0.0f), one = attn__vset(1.0f);
    int i;
    for (i = 0; i < n; i += ATTN__LANES) {
        const attn__vec x = attn__load_part(g + i, n - i);
        const attn__vmask grows = attn__vless(zero, x);
        const attn__vec y = ATTN__FN(vexp)(attn__choose(grows, attn__vsub(zero, x), x));
        ATTN__FN(store_part)(e + i, attn__choose(grows, attn__vdiv(one, y), y), n - i);
    }
}

static ATTN__TARGET void ATTN__FN(conv)(float *y, const float *const *x, const float *w, int w_row,
                                        int width, int n)
{
    int i, j;
    for (i = 0; i < n; i += ATTN__LANES) {
        attn__vec sum = attn__vload(w + width * w_row + i);
        for (j = 0; j < width; j++)
            sum = attn__vfma(attn__vload(w + j * w_row + i), attn__load_part(x[j] + i, n - i), sum);
        ATTN__FN(store_part)(y + i, ATTN__FN(vclean)(sum), n - i);
    }
}
#endif

#define ATTN__ENTRY(backends, result, name, parameters) ATTN__FN(name),
static const attn__kernels ATTN__FN(kernels) = {
    (attn_backend)ATTN__ISA, ATTN__ROWS, ATTN__KERNELS(ATTN__ENTRY)
};
#undef ATTN__ENTRY

#undef ATTN__FN
#undef ATTN__TARGET
#undef ATTN__LANES
#undef ATTN__ROWS
#undef ATTN__TRANSPOSED
#undef ATTN__HAS_HALF
#undef ATTN__HAS_BF16
#undef ATTN__LOADS_SOME
#undef ATTN__MM
#undef ATTN__SI
#undef ATTN__I
#undef ATTN__F
#undef ATTN__COMPARE
#undef ATTN__HALF
#undef ATTN__FOURS
#undef ATTN__FOUR
#undef ATTN__LOAD_HALF
#undef ATTN__DOT_BIAS
#undef ATTN__DOT_OLD
#undef ATTN__DOT_STEPS
#undef attn__vdot_old
#undef ATTN__DOT_TARGET
#undef ATTN__DOT_ELSE
#undef ATTN__ZIP_LOW
#undef ATTN__ZIP_HIGH
#undef ATTN__LOWER
#undef ATTN__UPPER
#undef ATTN__FMA_IN_PLACE
#undef ATTN__IN_REGISTER
#undef ATTN__WIDES
#undef ATTN__PASS
#undef ATTN__COMPONENTS
#undef ATTN__ISA
#endif /* ATTN__ISA */

/* =================================================================================================
 * 13  REVISION HISTORY AND LICENCE
 *
 * 1.0.0, not released yet, against the 0.9 headers (until 26 November 2026).
 * BITS: calls whose results differ.
 *   - attn_norm and the norms of layers sum a row in 16 lanes, not in one chain, and round the root
 *     correctly. The sums are in double, so most inputs keep their bits.
 *   - `causal` of attn_args: BOTTOM_RIGHT is 1 and TOP_LEFT is 2; before, they were 2 and 1. The
 *     names keep their bits; a number, as in a binding, has the other meaning, which only differs
 *     if there are not as many rows as keys.
 * New: caches and weights in 8 bits (ATTN_Q8, ATTN_Q8_0), linear attention (attn_delta, attn_conv),
 *   rel_bias, attn_norm, attn_activate, attn_linear_read, packed memory, x_stride of linears,
 *   v_head_dim and LayerNorm of queries and keys in layers, ATTN_POOL_SPIN, ATTN_NO_AFFINITY.
 * Changed. The compiler reports most of it, but not initialisers without names of members:
 *   attn_kv_args, attn_args, attn_mha_args and attn_mha_opts have another order.
 *   0.9                                        1.0
 *   attn_kv_args.storage                       k_storage and v_storage: set both; 0 is float
 *   attn_kv_append(c, k, v, n, counts, stride) attn_kv_append(c, entry, k, v, n, stride): entry -1
 *                                              is all. Instead of counts one call per entry, or
 *                                              attn_self_step with q_lengths
 *   w16 of linears and layers                  w with w_storage; storage is the format kept
 *   in_place of linears and layers             packed: save the packed memory once and map it
 *   attn_linear_run(l, y, x, rows, exec)       attn_linear_run(l, y, x, rows, 0, exec)
 *   gate, gate_n, gate_sigmoid of a call       multiply out, or for a factor per head the columns
 *                                              of w_o before init; gates computed from x: w_gate
 *   attn_finish(&a)                            attn_sdpa with carry_in, n_k 0, q and no keys
 *   attn_rope_sections                         six lines: M-RoPE in examples/RECIPES.md
 *   attn_bias_t5(bias, .., n_q, n_k, pos)      attn_bias_t5(rel_bias, .., extent), a table for all
 *                                              calls; the position of a row is q_pos
 *   rope_dim, rope_positions (attn_mha_args)   rotary_dim, positions
 *   table, interleaved (attn_rope_args)        rope_table, rope_interleaved
 *   attn_check_header, ATTN_SIZES,             compare attn_version() and attn_struct_size(name)
 *   ATTN_E_VERSION
 *
 * attn.h is available under two licences. Choose the one you prefer.
 *
 * ---- ALTERNATIVE A - MIT No Attribution (MIT-0)
 * Copyright (c) 2026 attn.h authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy of this software
 * and associated documentation files (the "Software"), to deal in the Software without
 * restriction, including without limitation the rights to use, copy, modify, merge, publish,
 * distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the
 * Software is furnished to do so.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING
 * BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
 * NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM,
 * DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
 *
 * ---- ALTERNATIVE B - Public Domain (www.unlicense.org)
 * This is free and unencumbered software released into the public domain.
 *
 * Anyone is free to copy, modify, publish, use, compile, sell, or distribute this software,
 * either in source code form or as a compiled binary, for any purpose, commercial or
 * non-commercial, and by any means.
 *
 * In jurisdictions that recognize copyright laws, the author or authors of this software dedicate
 * any and all copyright interest in the software to the public domain. We make this dedication
 * for the benefit of the public at large and to the detriment of our heirs and successors. We
 * intend this dedication to be an overt act of relinquishment in perpetuity of all present and
 * future rights to this software under copyright law.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING
 * BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND
 * NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN
 * CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
 * ============================================================================================== */
