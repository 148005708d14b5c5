/* fuzz_args.c: attn_args from bytes. Valid arguments must be accepted. Accepted calls must read and write inside
 * their buffers (which have exactly the allowed size) and agree with the oracle. Rejected calls must write nothing.
 * attn_check and attn_sdpa must return the same status. */
#include "fuzz.h"

enum { MOST_CELLS = 1 << 18, MOST_PAIRS = 1 << 21 };      /* larger calls get no buffers and are only checked */

/* ---- what the input breaks --------------------------------------------------------------------------------------- */

#define INTS(X) \
    X(batch) X(n_q) X(n_k) X(heads) X(kv_heads) X(head_dim) X(v_head_dim) X(layout) X(causal) X(align) X(q_pos) \
    X(window_left) X(window_right) X(k_batch) X(mask_shape[0]) X(mask_shape[1]) X(mask_shape[2]) X(keep_shape[0]) \
    X(keep_shape[1]) X(keep_shape[2]) X(bias_shape[0]) X(bias_shape[1]) X(bias_shape[2]) X(rel_extent) \
    X(weights_stage) X(backend)
#define STRIDES(X) \
    X(q_stride[0]) X(q_stride[1]) X(q_stride[2]) X(k_stride[0]) X(k_stride[1]) X(k_stride[2]) X(v_stride[0]) \
    X(v_stride[1]) X(v_stride[2]) X(out_stride[0]) X(out_stride[1]) X(out_stride[2]) X(mask_stride[0]) \
    X(mask_stride[1]) X(mask_stride[2]) X(keep_stride[0]) X(keep_stride[1]) X(keep_stride[2]) X(bias_stride[0]) \
    X(bias_stride[1]) X(bias_stride[2])
#define OFFSET(field) offsetof(attn_args, field),
static const size_t ints[] = {INTS(OFFSET)}, strides[] = {STRIDES(OFFSET)};
enum { N_INTS = sizeof ints / sizeof *ints, N_STRIDES = sizeof strides / sizeof *strides };

static void break_number(input *in, attn_args *a)
{
    unsigned what = u8(in) % (N_INTS + N_STRIDES + 2);
    if (what < N_INTS) {
        const int to = odd_size(in);
        memcpy((char *)a + ints[what], &to, sizeof to);
    } else if (what < N_INTS + N_STRIDES) {
        const unsigned how = u8(in);
        ptrdiff_t to = how < 128 ? odd_size(in) : (ptrdiff_t)((size_t)u32(in) << (how & 31));
        memcpy((char *)a + strides[what - N_INTS], &to, sizeof to);
    } else {
        static const uint32_t list[] = {0x7FC00000u, 0x7F800000u, 0xFF800000u, 0xBF800000u, 0x3A83126Fu, 0x41200000u,
                                        0u};
        *(what & 1 ? &a->scale : &a->softcap) = bits_float(list[u8(in) % 7u]);
    }
}

/* ---- extents, in doubles: invalid arguments may be anything ------------------------------------------------------ */

static double extent(const ptrdiff_t stride[3], double batch, double rows, double heads, double width)
{
    if (batch < 1 || rows < 1) return 0;
    return (batch - 1) * (double)stride[0] + (rows - 1) * (double)stride[1] + (heads - 1) * (double)stride[2] + width;
}

static double cells(const int shape[3], const ptrdiff_t stride[3], int heads, const oracle_shape *s)
{
    const int given = shape[0] || shape[1] || shape[2];
    const double batch = given ? shape[0] : 1, rows = given ? shape[2] : s->n_q;
    ptrdiff_t step[3];
    if (given) heads = shape[1];
    if (batch < 1 || heads < 1 || rows < 1 || s->n_k < 1) return 0;
    oracle_steps(step, shape, stride, heads, s);
    return (batch - 1) * (double)step[0] + (heads - 1) * (double)step[1] + (rows - 1) * (double)step[2] + s->n_k;
}

/* Strides wider than needed: only of rows, or all three, in any order. */
static void wider(input *in, const attn_args *a, const int shape[3], int heads, ptrdiff_t stride[3])
{
    static const int orders[6][3] = {{2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}, {1, 0, 2}, {0, 1, 2}};
    const int given = shape[0] || shape[1] || shape[2];
    const int *order = orders[a->q_cum ? 0 : u8(in) % 6u];   /* ragged: rows unknown */
    const int count[3] = {given ? shape[0] : 1, given ? shape[1] : heads, given ? shape[2] : a->n_q};
    ptrdiff_t reach = a->n_k;
    int i;
    for (i = 0; i < (order == orders[0] ? 1 : 3) && a->n_k; i++) {
        stride[order[i]] = reach + from_to(in, 0, 5);
        if (count[order[i]] > 1) reach += (count[order[i]] - 1) * stride[order[i]];
    }
}

/* Sets every cell of a tensor to `to`, or counts the cells that equal `to`. */
static size_t mark(unsigned char *map, const ptrdiff_t stride[3], int batch, int rows, int heads, int width, int to)
{
    size_t met = 0;
    int b, i, h, x;
    for (b = 0; b < batch; b++)
        for (i = 0; i < rows; i++)
            for (h = 0; h < heads; h++)
                for (x = 0; x < width; x++) {
                    unsigned char *cell = map + b * stride[0] + i * stride[1] + h * stride[2] + x;
                    if (to) *cell = (unsigned char)to;
                    else met += *cell;
                }
    return met;
}

/* Resolves every stride: 0 means packed after the inner dimensions, of which the widest one counts. */
static void resolve(ptrdiff_t stride[3], int layout, int heads, int rows, int width)
{
    const int inner = layout == ATTN_BHSD ? 1 : 2, order[3] = {inner, 3 - inner, 0}, count[3] = {0, rows, heads};
    ptrdiff_t packed = width;
    int i;
    for (i = 0; i < 3; i++) {
        if (!stride[order[i]]) stride[order[i]] = packed;
        if (stride[order[i]] * count[order[i]] > packed) packed = stride[order[i]] * count[order[i]];
    }
}

static attn_args resolved(const attn_args *a)
{
    const oracle_shape s = oracle_shape_of(a);
    attn_args r = *a;
    const int q_rows = a->q_cum ? a->q_cum[a->batch] : s.n_q, k_rows = a->k_cum ? a->k_cum[a->batch] : s.n_k;
    resolve(r.q_stride, a->layout, s.heads, q_rows, s.head_dim);
    resolve(r.out_stride, a->layout, s.heads, q_rows, s.v_head_dim);
    resolve(r.k_stride, a->layout, s.kv_heads, k_rows, s.head_dim);
    resolve(r.v_stride, a->layout, s.kv_heads, k_rows, s.v_head_dim);
    return r;
}

/* A call and all that it may touch. */
typedef struct world {
    attn_args a;
    attn_exec exec;
    attn_kv kv;                           /* zeroed: no cache */
    oracle_shape s;
    void *owned[24];
    int n_owned, insane, broken;
    unsigned f, f2;                       /* which members are set */
    unsigned poison;                      /* which special numbers K and V have */
    int breaks;                           /* how much is made invalid */
    int clash;                            /* out shares a float with an input; -1: out is elsewhere */
    int b;                                /* entries of the lists */
    int q_rows, k_rows, q_batch, k_batch, width;
    size_t q_size, k_size, v_size, n_out, n_weights, n_lse, masked;
    float *q, *k, *v, *out, *weights, *lse;
} world;

static void *own(world *w, void *p) { return w->owned[w->n_owned++] = p; }

static size_t room(world *w, double n)
{
    if (n >= 0 && n <= MOST_CELLS) return (size_t)n;
    w->insane = 1;
    return 1;
}

/* Additive cells. 0: none hidden; otherwise some or all are hidden, or some are special numbers. */
static float *additive(input *in, world *w, size_t n)
{
    float *m = (float *)own(w, normals(in, n));
    const unsigned kind = u8(in), every = 1 + kind % 5;
    size_t i, from = u8(in);
    for (i = from; i < n; i += every) m[i] = -INFINITY;
    if (kind > 240 && n) m[kind % n] = kind & 1 ? NAN : kind & 2 ? INFINITY : -1e9f;
    if (kind > 220 && kind < 240 && n) m[kind % n] = -0.0f;
    return m;
}

/* The number of heads with weights: all, or those of a list that is ascending, or invalid. */
static int planes(input *in, world *w, int heads)
{
    const unsigned which = u8(in);
    int *list, h, n = 0;
    if (which < 128 || heads > 64) return heads;
    list = (int *)own(w, malloc((size_t)heads * sizeof(int)));
    for (h = 0; h < heads; h++) if (which >> h % 7 & 1) list[n++] = h;
    if (n == 0) list[n++] = heads - 1;
    w->a.weights_heads = list, w->a.n_weights_heads = n;
    if (which > 250) list[u8(in) % (unsigned)n] = odd_size(in), w->broken = 1;
    if (which == 250) w->a.n_weights_heads = odd_size(in), w->broken = 1, w->insane |= w->a.n_weights_heads > n;
    return n;
}

/* Sizes: tiny, sometimes larger than a chunk. */
static void draw_sizes(input *in, world *w)
{
    attn_args *const a = &w->a;
    int kvh, group;
    w->breaks = (int)(u8(in) % 6u);
    w->breaks = w->breaks < 3 ? 0 : w->breaks - 2;
    w->f = u16(in), w->f2 = u16(in);
    a->batch = from_to(in, 0, 3);
    kvh = from_to(in, 1, 3), group = from_to(in, 1, 4);
    a->heads = kvh * group, a->kv_heads = group > 1 || coin(in) ? kvh : 0;
    a->n_q = from_to(in, 0, 7);
    a->n_k = (int)u8(in);
    a->n_k = a->n_k < 235 ? a->n_k % 20 : a->n_k - 114;
    a->head_dim = from_to(in, 1, 12);
    if (a->n_k > 60) a->n_q %= 3, a->batch = a->batch ? 1 : 0, a->head_dim = a->head_dim % 4 + 1;
    if (a->n_q == 7) {                    /* a full block of rows */
        a->n_q = 30, a->batch = a->batch ? 1 : 0, a->n_k %= 9, a->head_dim = a->head_dim % 4 + 1;
        if (group > 2) a->heads = a->kv_heads = kvh;
    }
    if (w->f & 1u) a->v_head_dim = from_to(in, 1, 20);
    if (w->f & 2u) a->layout = ATTN_BHSD;
    if (w->f & 4u) {                      /* 1 and 2 as in the corpus, which is older than the values of the enum */
        static const attn_causal causal[] = {ATTN_CAUSAL_NONE, ATTN_CAUSAL_TOP_LEFT, ATTN_CAUSAL_BOTTOM_RIGHT};
        a->causal = causal[from_to(in, 0, 2)];
    }
    if (w->f & 8u && !a->causal) a->align = coin(in);
    if (w->f & 16u) a->q_pos = from_to(in, -6, 40);
    if (w->f & 32u) a->window_left = from_to(in, 0, 12);
    if (w->f & 64u) a->window_right = from_to(in, 0, 12);
    if (w->f & 128u) a->scale = (float)from_to(in, -20, 20) / 8.0f;
    if (w->f & 256u) a->softcap = (float)from_to(in, 0, 20) / 2.0f;
    if (w->f & 512u) a->weights_stage = from_to(in, 0, 3);
}

/* Lengths, starts, maps and offsets of entries. */
static void draw_lists(input *in, world *w)
{
    attn_args *const a = &w->a;
    const int n_q = a->n_q < 0 ? 0 : a->n_q > 300 ? 300 : a->n_q, n_k = a->n_k < 0 ? 0 : a->n_k > 300 ? 300 : a->n_k;
    if (w->f & 1024u) a->q_lengths = (const int *)own(w, (void *)(uintptr_t)numbers(in, w->b, 0, n_q));
    if (w->f & 2048u) a->k_lengths = (const int *)own(w, (void *)(uintptr_t)numbers(in, w->b, 0, n_k));
    if (w->f & 4096u) {
        int *starts = (int *)own(w, (void *)(uintptr_t)numbers(in, w->b, 0, n_k)), j;
        for (j = 0; j < w->b; j++) {
            const int most = a->k_lengths ? n_k - a->k_lengths[j] : n_k;
            if (starts[j] > most) starts[j] = most;
        }
        a->k_starts = starts;
    }
    if (w->f & 8192u) {
        if (coin(in)) a->k_batch = from_to(in, 1, 4);
        const int batch = a->k_batch > 0 ? a->k_batch : w->b;
        a->k_map = (const int *)own(w, (void *)(uintptr_t)numbers(in, w->b, 0, batch - 1));
    }
    if (w->f & 16384u && !a->q_lengths) {
        int *cum = (int *)own(w, (void *)(uintptr_t)numbers(in, w->b + 1, 0, n_q)), j;
        for (j = 0; j < w->b; j++) cum[j + 1] += cum[j];
        a->q_cum = cum;
        if (coin(in)) a->n_q = 0;
    }
    if (w->f & 32768u && !a->k_lengths && !a->k_starts && !a->k_map) {
        int *cum = (int *)own(w, (void *)(uintptr_t)numbers(in, w->b + 1, 0, n_k)), j;
        for (j = 0; j < w->b; j++) cum[j + 1] += cum[j];
        a->k_cum = cum;
        if (coin(in)) a->n_k = 0;
    }
    if (w->f2 & 1u) a->q_pos_each = (const int *)own(w, (void *)(uintptr_t)numbers(in, w->b, -6, 20));
}

/* The lists of entries, of which some may hold an invalid number. */
static void draw_entries(input *in, world *w)
{
    attn_args *const a = &w->a;
    size_t i;
    for (i = 0; i < 2 && w->breaks; i++)
        if (coin(in)) break_number(in, a), w->broken = 1;
    w->b = a->batch > 0 && a->batch <= 4096 ? a->batch : 0;
    if (a->batch <= 4096) draw_lists(in, w);
    if (w->breaks > 1 && w->n_owned && w->b && coin(in)) {  /* an invalid entry of a list */
        int *x = (int *)w->owned[u8(in) % (unsigned)w->n_owned];
        x[u8(in) % (unsigned)w->b] = odd_size(in);
        w->broken = 1;
    }
    for (i = 0; i < 2; i++) {
        const int *cum = i ? a->k_cum : a->q_cum;
        int j;
        for (j = 0; cum && j <= w->b; j++)
            if (cum[j] < 0 || cum[j] > MOST_CELLS) w->insane = 1;
    }
}

/* Strides, some wider than needed. */
static void draw_strides(input *in, world *w)
{
    attn_args *const a = &w->a;
    w->s.heads = a->heads, w->s.kv_heads = a->kv_heads ? a->kv_heads : a->heads;
    if (w->f2 & 2u && a->head_dim > 0 && a->head_dim < 1000 && a->heads > 0 && a->heads < 1000 &&
        (unsigned)a->kv_heads < 1000) {
        const int more = from_to(in, 0, 9);
        const int dv = a->v_head_dim > 0 && a->v_head_dim < 1000 ? a->v_head_dim : a->head_dim;
        if (a->layout == ATTN_BSHD) {
            const unsigned which = u8(in);
            if (which & 1) a->q_stride[1] = a->heads * a->head_dim + more;
            if (which & 2) a->k_stride[1] = w->s.kv_heads * a->head_dim + more;
            if (which & 4) a->v_stride[1] = w->s.kv_heads * dv + more, a->v_stride[2] = dv;
            if (which & 8) a->out_stride[2] = dv + more;
        } else {
            a->q_stride[1] = a->head_dim + more;
            a->out_stride[1] = dv + more;
        }
    }
    if (w->breaks && coin(in)) break_number(in, a), w->broken = 1;
    if (a->batch > w->b)                  /* or after the arrays were made, which are then too short */
        a->q_pos_each = a->q_lengths = a->k_lengths = a->k_starts = a->k_map = a->q_cum = a->k_cum = NULL;
}

/* Shapes and strides of masks. */
static void draw_shapes(input *in, world *w)
{
    attn_args *const a = &w->a;
    size_t i;
    for (i = 0; i < 3; i++) {
        int *shape = i == 0 ? a->mask_shape : i == 1 ? a->keep_shape : a->bias_shape;
        if (w->f2 & 4u << i && w->f2 & 32u && !w->broken) {
            const unsigned which = u8(in);
            shape[0] = which & 1 && a->batch ? a->batch : 1, shape[1] = which & 2 ? a->heads : 1;
            shape[2] = which & 4 && a->n_q && !a->q_cum ? a->n_q : 1;
        }
        if (w->f2 & 4u << i && w->f2 & 64u && !w->broken && !a->k_cum)
            wider(in, a, shape, i == 2 ? a->heads : 1,
                  i == 0 ? a->mask_stride : i == 1 ? a->keep_stride : a->bias_stride);
    }
}

/* Resolves the shape of a call that is small enough for the oracle. Any other call is insane, and is only checked. */
static void check_sanity(world *w)
{
    attn_args *const a = &w->a;
    memset(&w->s, 0, sizeof w->s);
    if (!w->insane && a->heads > 0 && a->kv_heads >= 0 && a->batch >= 0 && a->batch <= 4096 && a->n_q >= 0 &&
        a->n_k >= 0 && a->head_dim > 0 && a->v_head_dim >= 0 && a->heads < 1 << 12 && a->kv_heads < 1 << 12 &&
        a->n_q < 1 << 12 && a->n_k < 1 << 12 && a->head_dim < 1 << 12 && a->v_head_dim < 1 << 12 &&
        a->k_batch >= 0 && a->k_batch < 1 << 12) {
        int sane = 1, d;
        const ptrdiff_t *all[4];
        all[0] = a->q_stride, all[1] = a->k_stride, all[2] = a->v_stride, all[3] = a->out_stride;
        for (d = 0; d < 12; d++)
            if (all[d / 3][d % 3] < 0 || all[d / 3][d % 3] > MOST_CELLS) sane = 0;
        for (d = 0; d < 9; d++) {
            const ptrdiff_t stride = (d < 3 ? a->mask_stride : d < 6 ? a->keep_stride : a->bias_stride)[d % 3];
            const int n = (d < 3 ? a->mask_shape : d < 6 ? a->keep_shape : a->bias_shape)[d % 3];
            if (n < 0 || n > 600 || stride < 0 || stride > MOST_CELLS) sane = 0;
        }
        if (sane) {
            const attn_args r = resolved(a);
            w->s = oracle_shape_of(&r);
            sane = (double)w->s.batch * w->s.heads * w->s.n_q * w->s.n_k <= MOST_PAIRS;       /* the oracle is slow */
        }
        if (!sane) memset(&w->s, 0, sizeof w->s), w->insane = 1;
    } else w->insane = 1;
}

/* The exact size of each buffer. */
static void size_buffers(input *in, world *w)
{
    attn_args *const a = &w->a;
    w->q_rows = w->insane ? 0 : a->q_cum ? a->q_cum[w->b] : w->s.n_q;
    w->k_rows = w->insane ? 0 : a->k_cum ? a->k_cum[w->b] : w->s.n_k;
    w->q_batch = a->q_cum ? a->batch > 0 : a->batch;
    w->k_batch = a->batch <= 0 ? 0 : a->k_cum ? 1 : a->k_batch > 0 ? a->k_batch : a->batch;
    if (!w->insane) {
        w->q_size = room(w, extent(w->s.q, w->q_batch, w->q_rows, w->s.heads, w->s.head_dim));
        w->k_size = room(w, extent(w->s.k, w->k_batch, w->k_rows, w->s.kv_heads, w->s.head_dim));
        w->v_size = room(w, extent(w->s.v, w->k_batch, w->k_rows, w->s.kv_heads, w->s.v_head_dim));
        w->n_out = room(w, extent(w->s.out, w->q_batch, w->q_rows, w->s.heads, w->s.v_head_dim));
        if (w->f2 & 128u) w->n_weights = room(w, (double)a->batch * planes(in, w, w->s.heads) * w->s.n_q * w->s.n_k);
        w->n_lse = room(w, (double)a->batch * w->s.heads * w->s.n_q);
    }
}

static void fill_buffers(input *in, world *w)
{
    attn_args *const a = &w->a;
    size_t i;
    a->q = w->q = (float *)own(w, normals(in, w->q_size));
    a->k = w->k = (float *)own(w, normals(in, w->k_size));
    a->v = w->v = (float *)own(w, normals(in, w->v_size));
    w->poison = w->f2 & 32768u ? u8(in) % 3u : 3u;
    for (i = 0; w->poison < 3u && i < 2; i++) {               /* 0: NaN in V; 1: in K; 2: infinities in V */
        const size_t n = w->poison == 1u ? w->k_size : w->v_size;
        float *const x = w->poison == 1u ? w->k : w->v;
        if (n) x[u16(in) % n] = w->poison == 2u ? (coin(in) ? INFINITY : -INFINITY) : bits_float(0xFFC12345u);
    }
    w->out = (float *)own(w, floats(w->n_out));
    if (w->f2 & 128u) a->weights = w->weights = (float *)own(w, floats(w->n_weights));
    if (w->f2 & 256u) a->lse = w->lse = (float *)own(w, floats(w->n_lse));
    memset(&w->masked, 0xA5, sizeof w->masked);
    if (w->f2 & 512u) a->masked_rows = &w->masked;
}

static void fill_masks(input *in, world *w)
{
    attn_args *const a = &w->a;
    size_t i;
    if (w->f2 & 4u) a->mask = additive(in, w, w->insane ? 1 : room(w, cells(a->mask_shape, a->mask_stride, 1, &w->s)));
    if (w->f2 & 8u) {
        const size_t n = w->insane ? 1 : room(w, cells(a->keep_shape, a->keep_stride, 1, &w->s));
        unsigned char *keep = (unsigned char *)own(w, malloc(n ? n : 1));
        const unsigned every = 1 + u8(in) % 5u;
        for (i = 0; keep && i < n; i++) keep[i] = (unsigned char)(i % every ? i : 0);
        a->keep = keep;
    }
    if (w->f2 & 16u)
        a->bias = additive(in, w, w->insane ? 1 : room(w, cells(a->bias_shape, a->bias_stride, a->heads, &w->s)));
    for (i = 0; a->q_pos_each && i < (size_t)w->b; i++)       /* distances past 2^24 are no longer exact floats */
        if (a->q_pos_each[i] > 1 << 20 || a->q_pos_each[i] < -(1 << 20)) w->f2 &= ~1024u;
    if (a->q_pos > 1 << 20 || a->q_pos < -(1 << 20)) w->f2 &= ~1024u;
    if (w->f2 & 1024u) a->alibi_slopes = (const float *)own(w, normals(in, w->insane ? 1 : (size_t)w->s.heads));
    if (w->f2 & 2048u) a->sinks = (const float *)own(w, normals(in, w->insane ? 1 : (size_t)w->s.heads));
    if (u8(in) % 4u == 1u) {              /* a table by distance */
        if (!a->rel_extent) a->rel_extent = from_to(in, 0, 150);
        if (a->rel_extent < 0) w->insane = 1;
        a->rel_bias = additive(in, w, w->insane ? 1 : room(w, w->s.heads * (2.0 * a->rel_extent + 1)));
    }
}

/* Places out inside, before or after q, k or v: rejected if a float would be shared. */
static void place_out(input *in, world *w)
{
    attn_args *const a = &w->a;
    if (w->f2 & 4096u && !w->insane && w->n_out) {
        const unsigned which = u8(in) % 3u;
        const size_t n = which == 0 ? w->q_size : which == 1 ? w->k_size : w->v_size, whole = 2 * w->n_out + n;
        if (n) {
            const size_t at = (size_t)from_to(in, 0, (int)(w->n_out + n > 65000 ? 65000 : w->n_out + n));
            float *arena = (float *)own(w, floats(whole)), *from = which == 0 ? w->q : which == 1 ? w->k : w->v;
            unsigned char *map = (unsigned char *)calloc(whole, 1);
            if (!map) abort();
            memcpy(arena + w->n_out, from, n * sizeof *arena);
            if (which == 0) a->q = w->q = arena + w->n_out;
            if (which == 1) a->k = w->k = arena + w->n_out;
            if (which == 2) a->v = w->v = arena + w->n_out;
            w->out = arena + at;
            mark(map + w->n_out, which == 0 ? w->s.q : which == 1 ? w->s.k : w->s.v,
                 which == 0 ? w->q_batch : w->k_batch, which == 0 ? w->q_rows : w->k_rows,
                 which == 0 ? w->s.heads : w->s.kv_heads, which == 2 ? w->s.v_head_dim : w->s.head_dim, 1);
            w->clash = mark(map + at, w->s.out, w->q_batch, w->q_rows, w->s.heads, w->s.v_head_dim, 0) > 0;
            free(map);
        }
    }
    a->out = w->out;
}

/* Pointers that are missing, or too many of them. */
static void break_pointers(input *in, world *w)
{
    attn_args *const a = &w->a;
    size_t i;
    attn_backend list[16];
    const int n_list = attn_backends(list, 16);
    w->broken = 1;
    switch (u8(in) % 13u) {
    case 0: a->out = NULL; break;
    case 1: a->q = NULL; break;
    case 2: a->k = NULL; break;
    case 3: a->v = NULL; break;
    case 4: a->kv = &w->kv; break;        /* a zeroed cache */
    case 5: w->exec.run = NULL, a->exec = &w->exec; break;
    case 6: w->exec.width = odd_size(in), a->exec = &w->exec; break;
    case 7: a->kv = &w->kv, a->k = a->v = NULL; break;
    case 8:                            /* two exclusive options */
        a->q_cum = (const int *)own(w, (void *)(uintptr_t)numbers(in, w->b + 1, 0, 0));
        a->q_lengths = (const int *)own(w, (void *)(uintptr_t)numbers(in, w->b, 0, 0));
        break;
    case 9:
        a->k_cum = (const int *)own(w, (void *)(uintptr_t)numbers(in, w->b + 1, 0, 0));
        *(coin(in) ? &a->k_lengths : coin(in) ? &a->k_starts : &a->k_map) =
            (const int *)own(w, (void *)(uintptr_t)numbers(in, w->b, 0, 0));
        break;
    case 10:                           /* a backend of another machine */
        for (a->backend = ATTN_WASM, i = 0; i < (size_t)n_list; i++)
            if (list[i] == a->backend) a->backend = (attn_backend)(a->backend - 1), i = (size_t)-1;
        break;
    case 11:                           /* a misaligned address */
        *(coin(in) ? &a->q : coin(in) ? &a->v : &a->bias) = (const float *)(const void *)((const char *)w->k + 1);
        break;
    default: a->weights = a->lse; break;
    }
    if (a->exec && w->exec.width > 64) w->insane = 1;
}

/* Executor and backend. */
static void draw_way(input *in, world *w)
{
    attn_args *const a = &w->a;
    attn_backend list[16];
    int n_list;
    w->width = from_to(in, 1, 5);
    w->exec.pool = &w->width, w->exec.width = w->width, w->exec.run = scrambled;
    if (w->f2 & 8192u) a->exec = &w->exec;
    a->user = &the_heap;
    n_list = attn_backends(list, 16);
    if (!w->broken || !a->backend) a->backend = w->f2 & 16384u ? list[u8(in) % (unsigned)n_list] : ATTN_AUTO;
    if (w->breaks > 2 && coin(in)) break_pointers(in, w);
}

/* The same call by the specification gives the same bits. */
static void agrees_with_scalar(world *w)
{
    attn_args *const a = &w->a;
    float *first = floats(w->n_out);
    int b, i, h;
    memcpy(first, w->out, w->n_out * sizeof *first);
    a->backend = ATTN_SCALAR;
    a->exec = NULL;
    a->work = NULL, a->work_size = 0;
    MUST(attn_sdpa(a) == ATTN_OK);
    for (b = 0; b < w->q_batch; b++)
        for (i = 0; i < w->q_rows; i++)
            for (h = 0; h < w->s.heads; h++) {
                const ptrdiff_t at = oracle_row_at(w->s.out, NULL, b, h, i);
                MUST(same_bits(first + at, w->out + at, (size_t)w->s.v_head_dim));
            }
    free(first);
}

static void run_rejected(world *w, attn_status said, const char *why, size_t why_size)
{
    const attn_status did = (refusal.count = 0, attn_sdpa(&w->a));
    if (did != said) DIE("attn_check says %d, attn_sdpa %d", (int)said, (int)did);
    MUST(refusal.count == 1 && refusal.status == (int)did && strncmp(refusal.text, "attn_sdpa: ", 11) == 0);
    if (why_size) MUST(strncmp(refusal.text + 11, why, why_size - 1) == 0);
}

/* Runs with work memory that is one byte too small and then exact, or with an allocation that fails; then compares. */
static void run_accepted(world *w, int work_mode, size_t need, char *why, size_t why_size)
{
    attn_args *const a = &w->a;
    attn_args plain;
    attn_status did;
    unsigned char *work = NULL;
    if (work_mode > 4 && need) {
        const size_t shift = (size_t)(work_mode - 5) * 3;
        work = (unsigned char *)malloc(need + shift);
        if (!work) abort();
        a->work = work + shift, a->work_size = need - 1;
        did = attn_check(a, why_size ? why : NULL, why_size);
        if (did != ATTN_E_WORK) DIE("work too small: %d %s", (int)did, why_size ? why : "");
        MUST(attn_sdpa(a) == ATTN_E_WORK && wiped(w->lse, w->lse ? w->n_lse * 4 : 0));
        a->work_size = need;
    } else if (work_mode == 4) {           /* allocation fails: an error, unless no memory is needed */
        the_heap.fail_at = 1;
        did = attn_sdpa(a);
        MUST(did == (the_heap.calls ? ATTN_E_MEMORY : ATTN_OK));
        if (did) MUST(w->clash == 0 || wiped(w->out, w->n_out * 4));
        the_heap.fail_at = 0;
    }
    did = attn_sdpa(a);
    if (did != ATTN_OK) DIE("attn_check says ok, attn_sdpa %d", (int)did);
    if (work) MUST(the_heap.calls == 0);
    plain = resolved(a);
    if (w->poison != 2u) agree(&plain);    /* exp may underflow to 0 in float only, and 0 * Inf is NaN */
    if (one_answer(a->backend) && w->n_out <= 65536 && w->clash < 0 && a->backend != ATTN_SCALAR) agrees_with_scalar(w);
    free(work);
}

static void check_and_run(input *in, world *w)
{
    const size_t why_size = (size_t)from_to(in, 0, 250);
    char *const why = (char *)malloc(why_size ? why_size : 1);
    const int valid = !w->broken;
    attn_status said;
    size_t need;
    int work_mode;
    if (!why) abort();
    said = attn_check(&w->a, why_size ? why : NULL, why_size);
    if (why_size) MUST(memchr(why, 0, why_size) != NULL);
    MUST(said <= ATTN_OK && said >= ATTN_E_ALIGN && strcmp(attn_status_str(said), "unknown status") != 0);
    if (valid && w->clash < 0 && said != ATTN_OK) DIE("a valid call is refused: %d %s", (int)said, why_size ? why : "");
    if (valid && w->clash > 0 && said != ATTN_E_OVERLAP) DIE("an overlap is not seen: %d", (int)said);
    if (valid && w->clash == 0 && said != ATTN_OK && said != ATTN_E_OVERLAP)
        DIE("a valid call is refused: %d", (int)said);
    need = attn_sdpa_workspace(&w->a);
    if (valid && !w->insane && said == ATTN_OK) MUST(need != SIZE_MAX);     /* unread arguments may be invalid */
    work_mode = from_to(in, 0, 7);
    if (said != ATTN_OK) {
        run_rejected(w, said, why, why_size);
        if (w->clash < 0) MUST(wiped(w->out, w->n_out * sizeof *w->out));
        MUST(wiped(w->weights, w->weights ? w->n_weights * sizeof *w->weights : 0));
        MUST(wiped(w->lse, w->lse ? w->n_lse * sizeof *w->lse : 0));
        MUST(wiped(&w->masked, sizeof w->masked));
    } else if (!w->insane && need < (size_t)1 << 26) run_accepted(w, work_mode, need, why, why_size);
    free(why);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    world w;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size + (size ? data[0] : 0u);
    memset(&w, 0, sizeof w);
    memset(&the_heap, 0, sizeof the_heap);
    w.clash = -1;
    draw_sizes(&in, &w);
    draw_entries(&in, &w);
    draw_strides(&in, &w);
    draw_shapes(&in, &w);
    check_sanity(&w);
    size_buffers(&in, &w);
    fill_buffers(&in, &w);
    fill_masks(&in, &w);
    place_out(&in, &w);
    draw_way(&in, &w);
    check_and_run(&in, &w);
    MUST(the_heap.live == 0);
    while (w.n_owned) free(w.owned[--w.n_owned]);
    return 0;
}
