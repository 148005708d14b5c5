/* kv_look.h: compares a cache with its model: both get the same calls, and the documented members of the struct are
 * read directly. For the suites of the cache. */
#ifndef KV_LOOK_H
#define KV_LOOK_H

#include "kv_model.h"
#include <limits.h>

KV_MODEL float *look_floats(size_t n) { return (float *)kv_model_memory(n * sizeof(float)); }

/* Memory of the caller at every alignment, filled with NaN and followed by a guard page. */
KV_MODEL unsigned char *look_memory(attn_kv_args *a, rng *r)
{
    const size_t size = attn_kv_size(a), shift = (size_t)rng_int(r, 0, 16) * 4;
    unsigned char *mem;
    CHECKF(size != (size_t)-1, "%s", refusal_text());
    mem = (unsigned char *)guard_alloc(size + shift);
    memset(mem, 0xFF, size + shift);
    a->mem = mem + shift;
    a->mem_size = size;
    return mem;
}

/* ---- the same call for both, bit for bit -------------------------------------------------- */
typedef struct look {
    int group, n_q, width;                /* width: of an executor, 0: none */
    attn_backend backend;
    attn_causal causal;
    int left, right;                      /* windows */
    int mask, keep, bias, alibi, rel, sinks, softcap, lse, wide;
    int weights;                          /* 0: none; else the stage + 1 */
    int map, k_lengths, q_lengths;
} look;

KV_MODEL look look_draw(rng *r)
{
    static const attn_causal causal[] = {ATTN_CAUSAL_NONE, ATTN_CAUSAL_TOP_LEFT,
                                         ATTN_CAUSAL_BOTTOM_RIGHT};
    attn_backend backends[16];
    const int n = test_all_backends(backends, 16);
    look how;
    how.group = rng_int(r, 1, 3);
    how.n_q = rng_int(r, 0, 3) ? rng_int(r, 1, 3) : rng_int(r, 4, 60);
    how.width = rng_int(r, 0, 5);
    how.backend = backends[rng_int(r, 0, n - 1)];
    how.causal = causal[rng_int(r, 0, 2)];
    how.left = rng_int(r, 0, 2) ? 0 : rng_int(r, 1, 300);
    how.right = rng_int(r, 0, 4) ? 0 : rng_int(r, 1, 200);
    how.mask = !rng_int(r, 0, 5);
    how.keep = !rng_int(r, 0, 4);
    how.bias = !rng_int(r, 0, 6);
    how.alibi = !rng_int(r, 0, 4);
    how.rel = rng_int(r, 0, 3) ? 0 : rng_int(r, 1, 150);
    how.sinks = !rng_int(r, 0, 4);
    how.softcap = !rng_int(r, 0, 5);
    how.lse = rng_int(r, 0, 1);
    how.wide = rng_int(r, 0, 2) ? 0 : rng_int(r, 0, KV_MODEL_SPARE);
    how.weights = rng_int(r, 0, 1) ? 0 : 1 + rng_int(r, 0, 3);
    how.map = !rng_int(r, 0, 4);
    how.k_lengths = !rng_int(r, 0, 4);
    how.q_lengths = !rng_int(r, 0, 4);
    return how;
}

KV_MODEL const char *look_words(const look *l)
{
    static char words[256];
    snprintf(words, sizeof words, "group %d n_q %d width %d %s causal %d window %d %d mask %d keep %d "
             "bias %d alibi %d rel %d sinks %d softcap %d weights %d map %d k_lengths %d q_lengths %d",
             l->group, l->n_q, l->width, attn_backend_name(l->backend), (int)l->causal, l->left,
             l->right, l->mask, l->keep, l->bias, l->alibi, l->rel, l->sinks, l->softcap, l->weights, l->map,
             l->k_lengths, l->q_lengths);
    return words;
}

/* All inputs of a call except K and V, and the outputs of both calls. */
typedef struct look_room {
    attn_args a;
    int map[KV_MODEL_BATCH], k_lengths[KV_MODEL_BATCH], q_lengths[KV_MODEL_BATCH];
    int plain_lengths[KV_MODEL_BATCH];
    float *q, *mask, *bias, *slopes, *rel, *sinks, *out, *weights, *lse;    /* outputs: two of each */
    unsigned char *keep;
    size_t n_out, n_weights, n_lse, masked[2];
    attn_exec exec;
} look_room;

/* Values that hide a third of the keys, add to another third, and leave the others unchanged. */
KV_MODEL float *look_cells(rng *r, size_t n)
{
    float *x = look_floats(n);
    for (size_t i = 0; i < n; i++) {
        const int what = rng_int(r, 0, 2);
        x[i] = what == 0 ? bits_float(0xFF800000u) : what == 1 ? rng_normal(r) : 0.0f;
    }
    return x;
}

KV_MODEL void look_masks(look_room *x, const look *how, rng *r)
{
    attn_args *a = &x->a;
    const size_t row = (size_t)a->n_k, rows = (size_t)a->n_q * row;
    if (how->mask) {                      /* one mask for all entries and heads */
        a->mask = x->mask = look_cells(r, rows);
    }
    if (how->bias) {                      /* one bias for each head */
        a->bias = x->bias = look_cells(r, (size_t)a->heads * rows);
    }
    if (how->keep) {                      /* for each entry: by key, or by row and key */
        const int padding = rng_int(r, 0, 1);
        const size_t n = (size_t)a->batch * (padding ? row : rows);
        x->keep = (unsigned char *)kv_model_memory(n);
        for (size_t i = 0; i < n; i++) x->keep[i] = (unsigned char)rng_int(r, 0, 1);
        a->keep = x->keep;
        a->keep_shape[0] = a->batch;
        a->keep_shape[1] = 1;
        a->keep_shape[2] = padding ? 1 : a->n_q;
    }
}

KV_MODEL void look_make(look_room *x, const attn_kv *c, const kv_model *m, const look *how, rng *r)
{
    attn_args *a = &x->a;
    int longest = 0;
    memset(x, 0, sizeof *x);
    a->batch = m->shape.batch;
    a->n_q = how->n_q;
    a->heads = m->shape.kv_heads * how->group;
    a->kv_heads = m->shape.kv_heads;
    a->head_dim = m->shape.head_dim;
    a->v_head_dim = m->shape.v_head_dim;
    a->kv = c;
    a->causal = how->causal;
    a->window_left = how->left;
    a->window_right = how->right;
    a->backend = how->backend;
    a->softcap = how->softcap ? 3.0f : 0.0f;
    x->exec = test_exec(how->width > 0 ? how->width : 1);
    if (how->width) a->exec = &x->exec;
    for (int b = 0; b < a->batch; b++) {
        x->map[b] = how->map ? rng_int(r, 0, a->batch - 1) : b;
        x->k_lengths[b] = m->length[x->map[b]];
        if (how->k_lengths) x->k_lengths[b] = rng_int(r, 0, x->k_lengths[b]);
        x->q_lengths[b] = rng_int(r, 0, a->n_q);
        if (x->k_lengths[b] > longest) longest = x->k_lengths[b];
    }
    if (how->map) a->k_map = x->map;
    if (how->k_lengths) a->k_lengths = x->k_lengths;
    if (how->q_lengths) a->q_lengths = x->q_lengths;
    a->n_k = longest + how->wide;
    look_masks(x, how, r);
    x->slopes = look_floats((size_t)a->heads);
    x->rel = look_floats((size_t)(a->heads * (2 * how->rel + 1)));
    x->sinks = look_floats((size_t)a->heads);
    rng_fill(r, x->slopes, (size_t)a->heads);
    rng_fill(r, x->rel, (size_t)(a->heads * (2 * how->rel + 1)));
    rng_fill(r, x->sinks, (size_t)a->heads);
    if (how->alibi) a->alibi_slopes = x->slopes;
    if (how->rel) a->rel_bias = x->rel, a->rel_extent = how->rel;
    if (how->sinks) a->sinks = x->sinks;
    x->n_lse = (size_t)(a->batch * a->heads * a->n_q);
    x->n_out = x->n_lse * (size_t)a->v_head_dim;
    x->n_weights = x->n_lse * (size_t)a->n_k;
    a->q = x->q = look_floats(x->n_lse * (size_t)a->head_dim);
    rng_fill(r, x->q, x->n_lse * (size_t)a->head_dim);
    kv_model_exact(x->q, x->n_lse, (size_t)a->head_dim, 1, a->head_dim, m->shape.k_storage);
    a->scale = kv_model_scale(m);
    x->out = look_floats(2 * x->n_out);
    x->lse = look_floats(2 * x->n_lse);
    x->weights = look_floats(2 * x->n_weights);
    memset(x->out, 0x77, 2 * x->n_out * sizeof(float));
    memset(x->lse, 0x77, 2 * x->n_lse * sizeof(float));
    memset(x->weights, 0x77, 2 * x->n_weights * sizeof(float));
    a->weights_stage = (attn_stage)(how->weights ? how->weights - 1 : 0);
}

/* Selects the first or the second set of outputs. */
KV_MODEL void look_outputs(look_room *x, attn_args *a, const look *how, int which)
{
    a->out = x->out + (size_t)which * x->n_out;
    a->weights = how->weights ? x->weights + (size_t)which * x->n_weights : NULL;
    a->lse = how->lse ? x->lse + (size_t)which * x->n_lse : NULL;
    a->masked_rows = &x->masked[which];
}

KV_MODEL int look_same(const look_room *x)
{
    return same_bits(x->out, x->out + x->n_out, x->n_out) && x->masked[0] == x->masked[1] &&
           same_bits(x->lse, x->lse + x->n_lse, x->n_lse) &&
           same_bits(x->weights, x->weights + x->n_weights, x->n_weights);
}

KV_MODEL void look_free(look_room *x)
{
    free(x->q); free(x->mask); free(x->bias); free(x->slopes); free(x->rel); free(x->sinks);
    free(x->out); free(x->weights); free(x->lse); free(x->keep);
}

/* Returns 1 if the cache and its model agree: out, weights, lse, masked_rows. */
KV_MODEL int look_at(const attn_kv *c, const kv_model *m, const look *how, rng *r)
{
    look_room x;
    attn_args plain;
    unsigned char *keep;
    int same;
    look_make(&x, c, m, how, r);
    look_outputs(&x, &x.a, how, 0);
    CHECK(attn_sdpa(&x.a) == ATTN_OK);
    plain = kv_model_args(m, &x.a, x.plain_lengths);
    keep = kv_model_hide(m, &plain);
    look_outputs(&x, &plain, how, 1);
    plain.exec = NULL;
    CHECK(attn_sdpa(&plain) == ATTN_OK);
    kv_model_hide_scores(m, &plain);
    same = look_same(&x) && kv_model_same_lengths(m, c);
    free(keep);
    look_free(&x);
    return same;
}

/* ---- the struct itself ----------------------------------------------------------------------- */
/* Number of keys of a page in its longest holder; 0: no holder. */
KV_MODEL int look_keys_in(const attn_kv *c, int page)
{
    int most = 0;
    for (int b = 0; b < c->shape.batch; b++) {
        const int keys = c->lengths[b] - (c->gaps[2 * b + 1] - c->gaps[2 * b]);
        for (int i = 0; i * 128 < keys; i++) {
            const int here = keys - i * 128 < 128 ? keys - i * 128 : 128;
            if (c->table[b * c->entry_pages + i] == page && here > most) most = here;
        }
    }
    return most;
}

/* n values in this format become NaN, from byte `at` of the cache on. */
KV_MODEL void look_spoil(attn_kv *c, size_t at, size_t n, attn_storage storage)
{
    unsigned char *to = (unsigned char *)c->memory + at;
    float *wide = (float *)(void *)to;
    unsigned short *narrow = (unsigned short *)(void *)to;
    for (; n > 0; n--) {
        if (storage == ATTN_Q8) *to++ = 0x80;             /* no NaN: that is the scale */
        else if (storage == ATTN_F32) *wide++ = bits_float(0x7FC0BAD0u);
        else *narrow++ = storage == ATTN_F16 ? 0x7EBA : 0x7FBA;
    }
}

/* NaN in every unused page, and in every used page after the keys of its longest holder. */
KV_MODEL void look_poison(attn_kv *c)
{
    const size_t head_dim = (size_t)c->shape.head_dim, keys = (size_t)c->page_keys;
    const size_t v_width = ((size_t)c->shape.v_head_dim + 15) / 16 * 16;
    const attn_storage k_stored = c->shape.k_storage, v_stored = c->shape.v_storage;
    const size_t k_cell = attn_stored_bytes(2, k_stored) - attn_stored_bytes(1, k_stored);
    const size_t v_cell = attn_stored_bytes(2, v_stored) - attn_stored_bytes(1, v_stored);
    const size_t together = k_stored == ATTN_Q8 ? 4 : 1;
    const size_t width = c->shape.v_in_k && head_dim > v_width ? head_dim : v_width;
    for (int page = 0; page < c->shape.pages; page++) {
        const size_t n = (size_t)look_keys_in(c, page);
        for (int head = 0; head < c->shape.kv_heads; head++) {
            const size_t k = (size_t)page * c->page_size + (size_t)head * keys * c->k_row;
            const size_t v = (size_t)page * c->page_size + c->page_v + (size_t)head * keys * c->v_row;
            const size_t scale = (size_t)page * c->page_size + (size_t)head * keys * 4;
            const size_t k_width = (head_dim + together - 1) / together * together;
            for (size_t j = n; j < keys; j++) {
                look_spoil(c, v + j * width * v_cell, width, v_stored);
                if (c->v_scales) look_spoil(c, scale + c->v_scales + 4 * j, 1, ATTN_F32);
                if (c->shape.v_in_k) continue;
                for (size_t i = 0; i < head_dim; i++)
                    look_spoil(c, k + (j / 16 * 16 * k_width + i / together * together * 16 + j % 16 * together +
                                       i % together) * k_cell, 1, k_stored);
                if (c->k_scales) look_spoil(c, scale + c->k_scales + 4 * j, 1, ATTN_F32);
            }
        }
    }
}

/* Returns the first error in the numbers of a cache, in words; NULL: none. */
KV_MODEL const char *look_numbers(const attn_kv *c, const kv_model *m)
{
    const int batch = c->shape.batch, pages = c->shape.pages;
    for (int b = 0; b < batch; b++) {
        if (c->lengths[b] != m->length[b]) return "a length";
        if (c->gaps[2 * b] != m->gap[b][0] || c->gaps[2 * b + 1] != m->gap[b][1]) return "a gap";
        for (int i = 0; i < kv_model_pages(m, b); i++) {
            const int page = c->table[b * c->entry_pages + i];
            if (page < 0 || page >= pages) return "a page that does not exist";
            if (c->holders[page] != kv_model_holders(m, m->page[b][i])) return "who shares a page";
            for (int e = 0; e < batch; e++)      /* the same page in both */
                for (int j = 0; j < kv_model_pages(m, e); j++)
                    if ((c->table[e * c->entry_pages + j] == page) != (m->page[e][j] == m->page[b][i]))
                        return "a page that is shared by others";
        }
    }
    if (c->free_pages != kv_model_free_pages(m)) return "free_pages";
    for (int page = 0; page < pages; page++) {
        int named = 0, idle = 0;
        for (int b = 0; b < batch; b++)
            for (int i = 0; i < kv_model_pages(m, b); i++)
                named += c->table[b * c->entry_pages + i] == page;
        for (int i = 0; i < c->free_pages; i++) idle += c->idle[i] == page;
        if (c->holders[page] != named) return "holders";
        if (idle != (named == 0)) return "the idle pages";
    }
    return NULL;
}

/* ---- nothing changed ------------------------------------------------------------------------- */
/* -1 in every unused slot of the lists. */
KV_MODEL void look_spoil_lists(attn_kv *c)
{
    const int batch = c->shape.batch, pages = c->shape.pages;
    for (int b = 0; b < batch; b++)
        for (int i = 0; i < c->entry_pages; i++)
            if (i * 128 >= c->lengths[b] - (c->gaps[2 * b + 1] - c->gaps[2 * b]))
                c->table[b * c->entry_pages + i] = INT_MIN;
    for (int i = c->free_pages; i < pages; i++) c->idle[i] = INT_MIN;
}

/* A snapshot of a cache. Numbers that were never written become NaN, and `scratch` gets a pattern: a call that reads
   them, or writes there, is detected. */
typedef struct snapshot { attn_kv c; unsigned char *memory; } snapshot;

KV_MODEL snapshot snapshot_take(attn_kv *c)
{
    snapshot s;
    look_poison(c);
    look_spoil_lists(c);
    if (c->bytes) memset(c->scratch, 0x5A, (size_t)(c->holders - c->scratch) * sizeof(int));
    s.c = *c;
    s.memory = (unsigned char *)kv_model_memory(c->bytes);
    if (c->bytes) memcpy(s.memory, c->memory, c->bytes);
    return s;
}

/* The structs without the bytes of padding between their members. */
KV_MODEL int snapshot_struct_same(const attn_kv *x, const attn_kv *y)
{
    static const size_t runs[4][2] = {
        {offsetof(attn_kv, shape.batch), offsetof(attn_kv, shape.v_in_k) + sizeof(int)},
        {offsetof(attn_kv, shape.mem), offsetof(attn_kv, shape.user) + sizeof(void *)},
        {offsetof(attn_kv, lengths), offsetof(attn_kv, entry_pages) + sizeof(int)},
        {offsetof(attn_kv, page_size), offsetof(attn_kv, own) + sizeof(void *)}
    };
    for (int i = 0; i < 4; i++)
        if (memcmp((const char *)x + runs[i][0], (const char *)y + runs[i][0], runs[i][1] - runs[i][0])) return 0;
    return 1;
}

/* Returns 1 if nothing has changed; frees the snapshot. */
KV_MODEL int snapshot_same(snapshot *s, const attn_kv *c)
{
    const unsigned char *now = (const unsigned char *)(const void *)c->memory;
    int same = snapshot_struct_same(&s->c, c);
    if (same && c->bytes) same = !memcmp(s->memory, now, c->bytes);       /* without memory there are no pointers */
    free(s->memory);
    return same;
}

/* REFUSED checks from now on that a rejected call does not change this cache. */
static snapshot kept_snapshot;

KV_MODEL void kept_cache_begin(void *c) { kept_snapshot = snapshot_take((attn_kv *)c); }

KV_MODEL void kept_cache_end(void *c)
{
    CHECKF(snapshot_same(&kept_snapshot, (const attn_kv *)c), "a rejected call changes the cache: %s", refusal_text());
}

KV_MODEL void refusal_keeps_cache(attn_kv *c) { refusal_around(kept_cache_begin, kept_cache_end, c); }

#endif
