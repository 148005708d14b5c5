/* fuzz_delta.c: attn_delta_args and attn_conv_args from bytes. Valid calls must be accepted. Accepted calls must read and
 * write inside their buffers (which have exactly the allowed size), and give the bits of the same rows one by one on another
 * backend. Rejected calls must write nothing, give one sentence and free their memory. */
#include "fuzz.h"

enum { MOST = 1 << 17, TENSORS = 8 };     /* floats of a tensor; calls with larger ones get no buffers */

/* A tensor of either function: a row is [heads][width]. */
typedef struct tensor {
    const float **at;                     /* the member that points to it */
    ptrdiff_t *given;                     /* its strides, or NULL: contiguous */
    int entries, rows, heads, width, ragged;      /* ragged: with q_cum all entries are one */
    ptrdiff_t stride[3];
    float *own;
    size_t cells;
} tensor;

typedef struct call {
    attn_delta_args d;
    attn_conv_args c;
    int conv, broken, insane, longest, total;
    int *lengths, *cum, batch;
    attn_exec exec;
    int width;
    tensor t[TENSORS];                    /* the outputs, out and state, first */
    int tensors;
} call;

#define MEMBER(of, x) (*((of)->conv ? &(of)->c.x : &(of)->d.x))

/* Resolves strides as the manual defines, in double: a broken stride may be anything. */
static void resolve(call *c, tensor *t, int cum)
{
    const double count[3] = { cum && t->ragged ? 1 : t->entries, t->rows, t->heads };
    double inside = t->width, reach = t->width;
    int d, none = 0;
    t->cells = 0;
    for (d = 2; d >= 0; d--) {
        const double stride = t->given && t->given[d] ? (double)t->given[d] : inside;
        if (count[d] < 0 || t->width < 0 || stride < 0 || stride > 1e9 || count[d] > 1e9) {
            c->insane = 1;
            return;
        }
        none |= count[d] == 0 || t->width == 0;
        t->stride[d] = (ptrdiff_t)stride;
        if (stride * count[d] > inside) inside = stride * count[d];
        if (count[d] > 1) reach += stride * (count[d] - 1);
    }
    if (!none) t->cells = reach > MOST ? MOST + 1 : (size_t)reach;
    c->insane |= t->cells > MOST;
}

static void add(call *c, const float **at, ptrdiff_t *given, int entries, int rows, int heads, int width, int ragged)
{
    tensor *t = &c->t[c->tensors++];
    t->at = at, t->given = given, t->entries = entries, t->rows = rows, t->heads = heads, t->width = width, t->ragged = ragged;
}

static void draw_sizes(input *in, call *c)
{
    const unsigned f = u8(in);
    int b, n;
    c->conv = (int)(u8(in) % 4u == 0);
    MEMBER(c, batch) = from_to(in, 0, 3);
    MEMBER(c, n) = from_to(in, 0, 9);
    if (MEMBER(c, n) == 9) MEMBER(c, n) = 70, MEMBER(c, batch) = 1;
    MEMBER(c, user) = &the_heap;
    if (c->conv) {
        c->c.channels = from_to(in, 1, 140), c->c.width = from_to(in, 1, 16), c->c.silu = (int)(f & 1u);
        if (MEMBER(c, n) == 70) c->c.channels = c->c.channels % 70 + 1;
    } else {
        const int kh = from_to(in, 1, 2), group = from_to(in, 1, 3);
        c->d.heads = kh * group, c->d.k_heads = group > 1 || coin(in) ? kh : 0;
        c->d.head_dim = from_to(in, 1, 10), c->d.v_head_dim = from_to(in, 0, 70);
        if (c->d.v_head_dim > 40 && coin(in)) c->d.v_head_dim = 64;
        c->d.rule = (attn_rule)(f & 1u), c->d.qk_norm = (int)(f >> 1 & 1u), c->d.g_per_component = (int)(f >> 2 & 1u);
        c->d.scale = (float)from_to(in, -4, 4) / 4.0f, c->d.norm_eps = (float)from_to(in, 0, 3) / 4.0f;
    }
    c->batch = MEMBER(c, batch), n = MEMBER(c, n);
    if ((f >> 3) % 3u == 1) {
        c->lengths = (int *)(uintptr_t)numbers(in, c->batch, 0, n);
        MEMBER(c, q_lengths) = c->lengths;
    } else if ((f >> 3) % 3u == 2) {
        c->cum = (int *)(uintptr_t)numbers(in, c->batch + 1, 0, n);
        for (b = 0; b < c->batch; b++) {
            if (c->cum[b + 1] > c->longest) c->longest = c->cum[b + 1];
            c->cum[b + 1] += c->cum[b];
        }
        MEMBER(c, q_cum) = c->cum;
        if (coin(in)) MEMBER(c, n) = 0;
    }
    c->width = from_to(in, 1, 5);
    c->exec.run = scrambled, c->exec.width = c->width, c->exec.pool = &c->width;
    MEMBER(c, exec) = coin(in) ? &c->exec : NULL;
}

/* Makes one number of a call wrong, or at least another one. */
static void break_number(input *in, call *c)
{
    static const size_t sizes[] = {
        offsetof(attn_delta_args, batch), offsetof(attn_delta_args, n), offsetof(attn_delta_args, heads),
        offsetof(attn_delta_args, k_heads), offsetof(attn_delta_args, head_dim), offsetof(attn_delta_args, v_head_dim),
        offsetof(attn_delta_args, rule), offsetof(attn_delta_args, qk_norm), offsetof(attn_delta_args, g_per_component),
        offsetof(attn_delta_args, backend)
    }, conv_sizes[] = {
        offsetof(attn_conv_args, batch), offsetof(attn_conv_args, n), offsetof(attn_conv_args, channels),
        offsetof(attn_conv_args, width), offsetof(attn_conv_args, silu), offsetof(attn_conv_args, backend)
    };
    const unsigned what = u8(in);
    const int to = odd_size(in);
    c->broken = 1;
    if (what < 120) {
        if (c->conv) memcpy((char *)&c->c + conv_sizes[what % 6u], &to, sizeof to);
        else memcpy((char *)&c->d + sizes[what % 10u], &to, sizeof to);
    } else if (what < 150) {
        if (c->lengths && c->batch) c->lengths[what % (unsigned)c->batch] = to;
        if (c->cum) c->cum[what % (unsigned)(c->batch + 1)] = to, c->insane |= to > MOST;
    } else if (what < 160) {
        MEMBER(c, exec) = &c->exec;
        if (coin(in)) c->exec.width = to < 1 ? to : 0;
        else c->exec.run = NULL;
    } else if (!c->conv && what < 230) {
        ptrdiff_t *const all[] = { c->d.q_stride, c->d.k_stride, c->d.v_stride, c->d.out_stride, c->d.g_stride,
                                   c->d.beta_stride };
        const unsigned how = u8(in);
        all[what % 6u][how % 3u] = how < 128 ? to : (ptrdiff_t)((size_t)u32(in) << (how & 31));
    } else if (!c->conv) {
        static const uint32_t list[] = { 0x7FC00000u, 0x7F800000u, 0xFF800000u, 0xBF800000u };
        *(what & 1 ? &c->d.scale : &c->d.norm_eps) = bits_float(list[to & 3]);
    }
}

/* Lists the tensors, with the extents that the manual allows for these arguments. */
static void list_tensors(input *in, call *c)
{
    const int batch = MEMBER(c, batch), n = MEMBER(c, n), rows = c->cum ? c->cum[c->batch] : n, some = rows != 0;
    const unsigned null = u8(in);
    int i;
    if (c->conv) {
        add(c, (const float **)(void *)&c->c.y, NULL, batch, rows, 1, c->c.channels, 1);
        add(c, (const float **)(void *)&c->c.state, NULL, batch, c->c.width > 0 ? some * (c->c.width - 1) : -1, 1, c->c.channels, 0);
        add(c, &c->c.x, NULL, batch, rows, 1, c->c.channels, 1);
        add(c, &c->c.w, NULL, 1, some * c->c.channels, 1, c->c.width, 1);
        if (null & 1) add(c, &c->c.bias, NULL, 1, some, 1, c->c.channels, 1);
    } else {
        const int kh = c->d.k_heads ? c->d.k_heads : c->d.heads, v = c->d.v_head_dim ? c->d.v_head_dim : c->d.head_dim;
        add(c, (const float **)(void *)&c->d.out, c->d.out_stride, batch, rows, c->d.heads, v, 1);
        add(c, (const float **)(void *)&c->d.state, NULL, batch, some * c->d.heads, c->d.head_dim, v, 0);
        add(c, &c->d.q, c->d.q_stride, batch, rows, kh, c->d.head_dim, 1);
        add(c, &c->d.k, c->d.k_stride, batch, rows, kh, c->d.head_dim, 1);
        add(c, &c->d.v, c->d.v_stride, batch, rows, c->d.heads, v, 1);
        if (null & 1 || c->d.g_per_component)
            add(c, &c->d.g, c->d.g_stride, batch, rows, c->d.heads, c->d.g_per_component ? c->d.head_dim : 1, 1);
        if (null & 2) add(c, &c->d.beta, c->d.beta_stride, batch, rows, c->d.heads, 1, 1);
    }
    for (i = 0; i < c->tensors; i++) {
        if (!c->conv && !c->broken && c->t[i].given && null & 4 && coin(in))         /* wider rows */
            c->t[i].given[1] = (ptrdiff_t)c->t[i].heads * c->t[i].width + from_to(in, 0, 5);
        resolve(c, &c->t[i], c->cum != NULL);
    }
    c->insane |= batch != c->batch && (c->lengths || c->cum);        /* a list that is too short may not be read */
    if (batch != c->batch) MEMBER(c, q_lengths) = MEMBER(c, q_cum) = NULL;
}

static attn_status run(call *c) { return c->conv ? attn_conv(&c->c) : attn_delta(&c->d); }

/* Compares n results, and wipes them. */
static void take(float *x, const float *want, int n)
{
    MUST(memcmp(x, want, (size_t)n * sizeof *x) == 0);
    memset(x, 0xA5, (size_t)n * sizeof *x);
}

/* The same rows one by one on another backend; `state` is the one before the call. */
static void one_by_one(input *in, call *c, const float *state)
{
    const int batch = MEMBER(c, batch), n = MEMBER(c, n), cum = c->cum != NULL, padded = cum ? 0 : n;
    tensor *out = &c->t[0], *s = &c->t[1];
    float *const first = out->own, *const after = s->own, *again = floats(s->cells);
    float *const zeros = (float *)calloc((size_t)out->width + 1, sizeof *zeros);
    const size_t each = batch ? s->cells / (size_t)batch : 0;
    call one = *c;
    attn_backend all[16];
    const int backends = attn_backends(all, 16), fused = one_answer(MEMBER(c, backend) ? MEMBER(c, backend) : all[0]);
    int b, t, h, i;
    if (!zeros) abort();
    if (s->cells) memcpy(again, state, s->cells * sizeof *again);
    MEMBER(&one, batch) = 1, MEMBER(&one, n) = 1, MEMBER(&one, q_lengths) = MEMBER(&one, q_cum) = NULL;
    if (!c->conv) one.d.work = NULL;
    for (b = 0; b < batch; b++) {
        const int rows = cum ? c->cum[b + 1] - c->cum[b] : c->lengths ? c->lengths[b] : n;
        const ptrdiff_t row = cum ? c->cum[b] : 0, entry = cum ? 0 : b;
        for (t = 0; t < rows; t++) {
            const attn_backend next = all[u8(in) % (unsigned)backends];
            float *y = floats((size_t)out->heads * (size_t)out->width);
            if (fused && one_answer(next)) MEMBER(&one, backend) = next;
            for (i = 0; i < c->tensors; i++)
                if (c->t[i].given || (c->conv && (i == 0 || i == 2)))
                    *(const float **)(void *)((char *)&one + ((const char *)c->t[i].at - (const char *)c)) =
                        c->t[i].own + entry * c->t[i].stride[0] + (row + t) * c->t[i].stride[1];
            if (c->conv) one.c.y = y, one.c.state = s->cells ? again + (size_t)b * each : NULL;
            else {
                one.d.out = y, one.d.state = again + (size_t)b * each;
                one.d.out_stride[2] = out->width;
                for (i = 2; i < c->tensors; i++)
                    memcpy((char *)&one + ((const char *)c->t[i].given - (const char *)c), c->t[i].stride, sizeof c->t[i].stride);
                memset(one.d.out_stride, 0, sizeof one.d.out_stride);
            }
            MUST(run(&one) == ATTN_OK);
            for (h = 0; h < out->heads; h++)
                take(first + entry * out->stride[0] + (row + t) * out->stride[1] + h * out->stride[2],
                     y + h * out->width, out->width);
            free(y);
        }
        for (t = rows; t < padded; t++)
            for (h = 0; h < out->heads; h++)
                take(first + b * out->stride[0] + t * out->stride[1] + h * out->stride[2], zeros, out->width);
    }
    MUST(wiped(first, out->cells * sizeof *first));                  /* nothing between the rows */
    free(zeros);
    MUST(s->cells == 0 || memcmp(again, after, s->cells * sizeof *again) == 0);
    free(again);
}

static void use(input *in, call *c)
{
    float *before = NULL;
    char *work = NULL;
    attn_status status;
    size_t need = 0;
    const unsigned how = u8(in);
    int i;
    for (i = 0; i < c->tensors && !c->insane; i++) {
        tensor *t = &c->t[i];
        t->own = i ? normals(in, t->cells) : floats(t->cells);
        if (!c->conv && (t->at == &c->d.k || t->at == &c->d.g))      /* so that the recurrence does not grow */
            for (need = 0; need < t->cells; need++) t->own[need] *= t->own[need] > 0 ? -0.25f : 0.25f;
        *t->at = t->own;
    }
    if (!c->insane && how > 250) *c->t[how % (unsigned)c->tensors].at = NULL, c->broken = 1;
    if (!c->insane && how > 240 && how <= 250 && c->t[0].cells)                    /* an overlap, or not aligned */
        *c->t[2].at = how & 1 ? c->t[0].own : (const float *)(const void *)((const char *)c->t[2].own + 1), c->broken = 1;
    if (!c->insane && c->t[1].cells) {
        before = floats(c->t[1].cells);
        memcpy(before, c->t[1].own, c->t[1].cells * sizeof *before);
    }
    need = c->conv ? 0 : attn_delta_workspace(&c->d);
    if (!c->conv && need != SIZE_MAX && need < 1 << 22 && how & 1) {
        c->d.work = work = (char *)malloc(need + 1);
        if (!work) abort();
        c->d.work = work + (how >> 1 & 1);
        c->d.work_size = need - (how > 230 && how < 240);
        if (how > 230 && how < 240) c->broken = 1;
    } else if (!c->conv && how > 220 && how < 230) the_heap.fail_at = 1, c->broken = 1;
    the_heap.calls = 0;
    refusal.count = 0;
    status = run(c);
    MUST(the_heap.live == 0);
    MUST(refusal.count == (status != ATTN_OK) && (status == ATTN_OK || refusal.status == (int)status));
    if (status != ATTN_OK && !c->broken && !c->insane) DIE("valid, but refused: %s", refusal.text);
    if (c->insane) MUST(status != ATTN_OK || MEMBER(c, batch) == 0 || MEMBER(c, n) == 0 || c->cum);
    else if (status != ATTN_OK) {
        MUST(wiped(c->t[0].own, c->t[0].cells * sizeof(float)));
        MUST(!before || memcmp(before, c->t[1].own, c->t[1].cells * sizeof *before) == 0);
    } else if (how <= 240) {
        the_heap.fail_at = 0;
        one_by_one(in, c, before);
    }
    for (i = 0; i < c->tensors; i++) free(c->t[i].own);
    free(before), free(work);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in;
    call c;
    unsigned breaks;
    in.at = data, in.end = data + size, in.noise = (uint32_t)size;
    memset(&the_heap, 0, sizeof the_heap);
    memset(&c, 0, sizeof c);
    breaks = u8(&in) % 4u;
    draw_sizes(&in, &c);
    for (; breaks > 1; breaks--) break_number(&in, &c);
    list_tensors(&in, &c);
    use(&in, &c);
    free(c.lengths), free(c.cum);
    MUST(the_heap.live == 0);
    return 0;
}
