/* kv_model.h: the model of a cache: rows in order of arrival, entry by entry, NaN without a key.
 *
 * Every operation of attn_kv has a counterpart here. It returns the status that the cache must
 * return, and also changes nothing if it rejects a call:
 *
 *     CHECK(attn_kv_append(&c, entry, k, v, n, 0) == kv_model_append(&m, entry, k, v, n, 0));
 *
 * Pages are counted as the header specifies: an entry needs one for every 128 keys that it has
 * not forgotten; entries with a common beginning share them; the last one, if partly filled,
 * is copied on write. A page is a unique number.
 *
 * The contents of a cache are tested by attention: it must give the bits of the rows of the model.
 * Forgotten keys are NaN in the rows, and hidden by keep bytes:
 *
 *     int lengths[KV_MODEL_BATCH];
 *     attn_args plain = kv_model_args(&m, &a, lengths);        a reads the cache, plain the model
 *     unsigned char *keep = kv_model_hide(&m, &plain);         free keep afterwards
 *
 * This also holds for 8 bits, if rounding to 8 bits changes nothing: kv_model_exact makes such rows of keys, values and
 * queries, and kv_model_scale is a power of two. */
#ifndef KV_MODEL_H
#define KV_MODEL_H

#include "test.h"

#if defined(__GNUC__) || defined(__clang__)
#define KV_MODEL static inline __attribute__((unused))
#else
#define KV_MODEL static inline
#endif

enum { KV_MODEL_BATCH = 8,                /* most entries */
       KV_MODEL_SPARE = 2,                /* rows after the capacity: a mask may be wider */
       KV_MODEL_CHUNK = 128 };            /* keys of a page */

typedef struct kv_model {
    attn_kv_args shape;                   /* v_head_dim and pages resolved; mem, user: none */
    int rows;                             /* of an entry: more than any entry has had */
    int entry_pages;                      /* room for pages in an entry */
    size_t k_row, v_row;                  /* floats of a key and of a value, all heads */
    float *k, *v;                         /* [batch][rows][k_row], [batch][rows][v_row] */
    int length[KV_MODEL_BATCH];           /* keys that an entry has had */
    int gap[KV_MODEL_BATCH][2];           /* keys from .. to - 1 of them are forgotten; 0, 0: none */
    int *page[KV_MODEL_BATCH];            /* [entry_pages] the pages that an entry holds, in order */
    int pages_so_far;                     /* the number of the next page that is taken */
    int missing;                          /* missing pages at the last FULL, or 0 */
} kv_model;

KV_MODEL float *kv_model_k(const kv_model *m, int b, int j)
{
    return m->k + ((size_t)b * (size_t)m->rows + (size_t)j) * m->k_row;
}

KV_MODEL float *kv_model_v(const kv_model *m, int b, int j)
{
    return m->v + ((size_t)b * (size_t)m->rows + (size_t)j) * m->v_row;
}

KV_MODEL int kv_model_keys(const kv_model *m, int b)          /* Number of keys that are not forgotten. */
{
    return m->length[b] - (m->gap[b][1] - m->gap[b][0]);
}

KV_MODEL int kv_model_pages(const kv_model *m, int b)
{
    return (kv_model_keys(m, b) + KV_MODEL_CHUNK - 1) / KV_MODEL_CHUNK;
}

KV_MODEL void *kv_model_memory(size_t bytes)
{
    void *p = malloc(bytes + 1);
    if (!p) abort();
    return p;
}

KV_MODEL void kv_model_poison(float *from, const float *end)
{
    while (from < end) *from++ = bits_float(0x7FC0BAD0u);
}

/* Rows first .. end - 1 of entry b are not keys. */
KV_MODEL void kv_model_empty(kv_model *m, int b, int first, int end)
{
    kv_model_poison(kv_model_k(m, b, first), kv_model_k(m, b, end));
    kv_model_poison(kv_model_v(m, b, first), kv_model_v(m, b, end));
}

/* Cuts entry b to its first `length` keys. The forgotten keys are all before or all after this point. */
KV_MODEL void kv_model_cut(kv_model *m, int b, int length)
{
    kv_model_empty(m, b, length, m->rows);
    m->length[b] = length;
    if (length <= m->gap[b][0]) m->gap[b][0] = m->gap[b][1] = 0;
}

KV_MODEL void kv_model_make_rows(kv_model *m, int rows)
{
    const size_t keys = (size_t)m->shape.batch * (size_t)rows;
    m->rows = rows;
    m->k = (float *)kv_model_memory(keys * m->k_row * sizeof(float));
    m->v = (float *)kv_model_memory(keys * m->v_row * sizeof(float));
    for (int b = 0; b < m->shape.batch; b++) kv_model_empty(m, b, 0, rows);
}

KV_MODEL void kv_model_make(kv_model *m, const attn_kv_args *a)
{
    memset(m, 0, sizeof *m);
    m->shape = *a;
    m->shape.v_head_dim = a->v_head_dim ? a->v_head_dim : a->head_dim;
    m->shape.mem = m->shape.user = NULL;
    m->entry_pages = (a->capacity + KV_MODEL_CHUNK - 1) / KV_MODEL_CHUNK;
    if (!a->pages) m->shape.pages = a->batch * m->entry_pages;
    m->k_row = (size_t)a->kv_heads * (size_t)a->head_dim;
    m->v_row = (size_t)a->kv_heads * (size_t)m->shape.v_head_dim;
    if (a->batch > KV_MODEL_BATCH) abort();
    for (int b = 0; b < a->batch; b++)
        m->page[b] = (int *)kv_model_memory((size_t)m->entry_pages * sizeof(int));
    kv_model_make_rows(m, a->capacity + KV_MODEL_SPARE);
}

KV_MODEL void kv_model_free(kv_model *m)
{
    free(m->k);
    free(m->v);
    for (int b = 0; b < KV_MODEL_BATCH; b++) free(m->page[b]);
    memset(m, 0, sizeof *m);
}

KV_MODEL kv_model kv_model_clone(const kv_model *from)
{
    kv_model m = *from;
    kv_model_make_rows(&m, from->rows);
    for (int b = 0; b < from->shape.batch; b++) {
        m.page[b] = (int *)kv_model_memory((size_t)m.entry_pages * sizeof(int));
        memcpy(m.page[b], from->page[b], (size_t)kv_model_pages(from, b) * sizeof(int));
        memcpy(kv_model_k(&m, b, 0), kv_model_k(from, b, 0), (size_t)m.rows * m.k_row * sizeof(float));
        memcpy(kv_model_v(&m, b, 0), kv_model_v(from, b, 0), (size_t)m.rows * m.v_row * sizeof(float));
    }
    return m;
}

/* Room for `rows` keys in every entry: positions continue after the capacity. */
KV_MODEL void kv_model_room(kv_model *m, int rows)
{
    kv_model old = *m;
    if (rows <= m->rows) return;
    kv_model_make_rows(m, 2 * rows);
    for (int b = 0; b < m->shape.batch; b++) {
        memcpy(kv_model_k(m, b, 0), kv_model_k(&old, b, 0), (size_t)old.rows * m->k_row * sizeof(float));
        memcpy(kv_model_v(m, b, 0), kv_model_v(&old, b, 0), (size_t)old.rows * m->v_row * sizeof(float));
    }
    free(old.k);
    free(old.v);
}

/* ---- pages --------------------------------------------------------------------------------- */
/* Returns the number of entries that hold this page. */
KV_MODEL int kv_model_holders(const kv_model *m, int page)
{
    int n = 0;
    for (int b = 0; b < m->shape.batch; b++)
        for (int i = 0; i < kv_model_pages(m, b); i++) n += m->page[b][i] == page;
    return n;
}

/* Pages that some entry holds, each counted once. */
KV_MODEL int kv_model_used(const kv_model *m)
{
    int used = 0;
    for (int b = 0; b < m->shape.batch; b++)
        for (int i = 0; i < kv_model_pages(m, b); i++) {
            int seen = 0;
            for (int e = 0; e < b; e++)
                for (int j = 0; j < kv_model_pages(m, e); j++) seen |= m->page[e][j] == m->page[b][i];
            used += !seen;
        }
    return used;
}

KV_MODEL int kv_model_free_pages(const kv_model *m) { return m->shape.pages - kv_model_used(m); }

/* Prepares entry b for `count` more keys: makes the page that it writes to unshared, and takes the pages it needs.
   Entries do so one after the other. */
KV_MODEL void kv_model_grow(kv_model *m, int b, int count)
{
    const int keys = kv_model_keys(m, b), held = kv_model_pages(m, b);
    const int want = (int)((keys + (long long)count + KV_MODEL_CHUNK - 1) / KV_MODEL_CHUNK);
    if (count > 0 && keys % KV_MODEL_CHUNK && kv_model_holders(m, m->page[b][held - 1]) > 1)
        m->page[b][held - 1] = m->pages_so_far++;
    for (int i = held; i < want; i++) m->page[b][i] = m->pages_so_far++;
}

/* ---- the operations ------------------------------------------------------------------------ */
/* ATTN_OK if every entry can get counts[b] more keys; then it holds the pages for them. */
KV_MODEL attn_status kv_model_reserve(kv_model *m, const int *counts)
{
    kv_model tried = *m;
    int *page[KV_MODEL_BATCH], used;
    m->missing = 0;
    for (int b = 0; b < m->shape.batch; b++)
        if (counts[b] > m->shape.capacity - kv_model_keys(m, b)) return ATTN_E_FULL;
    for (int b = 0; b < m->shape.batch; b++) {
        page[b] = (int *)kv_model_memory((size_t)m->entry_pages * sizeof(int));
        memcpy(page[b], m->page[b], (size_t)kv_model_pages(m, b) * sizeof(int));
    }
    for (int b = 0; b < m->shape.batch; b++) {
        kv_model_grow(&tried, b, counts[b]);
        tried.length[b] += counts[b];
    }
    used = kv_model_used(&tried);
    if (used > m->shape.pages)            /* taken back */
        for (int b = 0; b < m->shape.batch; b++)
            memcpy(m->page[b], page[b], (size_t)kv_model_pages(m, b) * sizeof(int));
    else m->pages_so_far = tried.pages_so_far;
    for (int b = 0; b < m->shape.batch; b++) free(page[b]);
    if (used > m->shape.pages) m->missing = used - m->shape.pages;
    return used > m->shape.pages ? ATTN_E_FULL : ATTN_OK;
}

/* With v_in_k the value of a key is its front, head by head: the stored numbers. */
KV_MODEL void kv_model_fronts(const kv_model *m, int b, int j)
{
    const size_t k_dim = (size_t)m->shape.head_dim, v_dim = (size_t)m->shape.v_head_dim;
    for (size_t h = 0; h < (size_t)m->shape.kv_heads; h++)
        memcpy(kv_model_v(m, b, j) + h * v_dim, kv_model_k(m, b, j) + h * k_dim, v_dim * sizeof(float));
}

/* In 8 bits: changes rows to whole multiples of 1 or 2, of which one is 127 times as large unless all are 0. Then
   scores are exact integers, and a value times the weight of its key is rounded once, in plain rows as in a cache. */
KV_MODEL void kv_model_exact(float *x, size_t rows, size_t stride, int heads, int dim, attn_storage storage)
{
    for (size_t i = 0; storage == ATTN_Q8 && i < rows * (size_t)heads; i++) {
        float *row = x + i / (size_t)heads * stride + i % (size_t)heads * (size_t)dim, unit;
        int some = 0, sum = 0;
        for (int c = 0; c < dim; c++) {
            const float by = row[c] * 40.0f;
            const int n = by >= 127.0f ? 127 : by <= -127.0f ? -127 : by > -127.0f ? (int)by : 0;       /* NaN: 0 */
            some |= n, sum += n < 0 ? -n : n;
            row[c] = (float)n;
        }
        if (some) row[sum % dim] = sum & 1 ? 127.0f : -127.0f;
        unit = sum & 2 ? 2.0f : 1.0f;
        for (int c = 0; c < dim; c++) row[c] *= unit;
    }
}

/* The scale of calls: 0, the default, but for keys of 8 bits a power of two. */
KV_MODEL float kv_model_scale(const kv_model *m)
{
    return m->shape.k_storage == ATTN_Q8 ? 1.0f / 4096 : 0.0f;
}

/* A value is rounded once, when it is stored; the suite of storage tests the rounding itself. */
KV_MODEL void kv_model_store(float *to, const float *from, size_t n, attn_storage storage)
{
    for (size_t i = 0; i < n; i++) {
        unsigned short narrow;
        to[i] = from[i];
        if (storage == ATTN_F32 || storage == ATTN_Q8) continue;
        if (attn_narrow(&narrow, from + i, 1, storage) != ATTN_OK ||
            attn_widen(to + i, &narrow, 1, storage) != ATTN_OK) abort();
    }
}

/* Row i of entry b of an append or a step is row b * between + i of k and v: the first counts[b]
   rows of each entry are appended. */
KV_MODEL attn_status kv_model_add(kv_model *m, const float *k, const float *v, const int *counts,
                                  size_t between, ptrdiff_t row_stride)
{
    const size_t k_step = row_stride ? (size_t)row_stride : m->k_row,
                 v_step = row_stride ? (size_t)row_stride : m->v_row;
    const int v_in_k = m->shape.v_in_k;
    const attn_status status = kv_model_reserve(m, counts);
    if (v_in_k && v) abort();             /* the model has no answer to this, */
    if (k_step < m->k_row || (!v_in_k && v_step < m->v_row)) abort();      /* nor to this */
    if (status != ATTN_OK) return status;
    for (int b = 0; b < m->shape.batch; b++) {
        kv_model_room(m, m->length[b] + counts[b] + KV_MODEL_SPARE);
        for (int i = 0; i < counts[b]; i++, m->length[b]++) {
            const size_t row = (size_t)b * between + (size_t)i;
            kv_model_store(kv_model_k(m, b, m->length[b]), k + row * k_step, m->k_row, m->shape.k_storage);
            if (v_in_k) kv_model_fronts(m, b, m->length[b]);
            else kv_model_store(kv_model_v(m, b, m->length[b]), v + row * v_step, m->v_row, m->shape.v_storage);
        }
    }
    return ATTN_OK;
}

/* attn_kv_append: n rows for one entry, or for all (entry -1) */
KV_MODEL attn_status kv_model_append(kv_model *m, int entry, const float *k, const float *v, int n,
                                     ptrdiff_t row_stride)
{
    int counts[KV_MODEL_BATCH];
    if (entry < -1 || entry >= m->shape.batch) return ATTN_E_MAP;
    if (n < 0) return ATTN_E_SIZE;
    if (row_stride < 0) return ATTN_E_STRIDE;
    for (int b = 0; b < m->shape.batch; b++) counts[b] = entry == -1 || entry == b ? n : 0;
    return kv_model_add(m, k, v, counts, entry == -1 ? (size_t)n : 0, row_stride);
}

/* attn_self_step appends the first q_lengths[b] of n rows of each entry (NULL: all n). */
KV_MODEL attn_status kv_model_step(kv_model *m, const float *k, const float *v, int n,
                                   const int *q_lengths)
{
    int counts[KV_MODEL_BATCH];
    for (int b = 0; b < m->shape.batch; b++) {
        counts[b] = q_lengths ? q_lengths[b] : n;
        if (counts[b] < 0 || counts[b] > n) return ATTN_E_LENGTHS;
    }
    return kv_model_add(m, k, v, counts, (size_t)n, 0);
}

/* Returns 1 if entry b can be cut to its first `length` keys. */
KV_MODEL int kv_model_ends(const kv_model *m, int b, int length)
{
    return length >= 0 && length <= m->length[b] &&
           (length <= m->gap[b][0] || length >= m->gap[b][1]);
}

/* attn_kv_reset is this to 0 */
KV_MODEL attn_status kv_model_truncate(kv_model *m, int entry, int length)
{
    if (entry < -1 || entry >= m->shape.batch) return ATTN_E_MAP;
    for (int b = 0; b < m->shape.batch; b++)
        if ((entry == -1 || entry == b) && !kv_model_ends(m, b, length)) return ATTN_E_LENGTHS;
    for (int b = 0; b < m->shape.batch; b++)
        if (entry == -1 || entry == b) kv_model_cut(m, b, length);
    return ATTN_OK;
}

/* Keys rows[0] < rows[1] < .. move to from, from + 1, ..; later keys are cut off. */
KV_MODEL attn_status kv_model_keep(kv_model *m, int entry, int from, const int *rows, int n)
{
    int moved = 0, need = 0, first, last;
    if (entry < 0 || entry >= m->shape.batch) return ATTN_E_MAP;
    if (!kv_model_ends(m, entry, from)) return ATTN_E_LENGTHS;
    if (n < 0) return ATTN_E_SIZE;
    if (n > m->length[entry] - from || (n > 0 && from < m->gap[entry][1])) return ATTN_E_LENGTHS;
    for (int i = 0; i < n; i++)
        if (rows[i] < from || rows[i] >= m->length[entry] || (i > 0 && rows[i] <= rows[i - 1]))
            return ATTN_E_LENGTHS;
    while (moved < n && rows[moved] == from + moved) moved++;
    first = (from + moved - (m->gap[entry][1] - m->gap[entry][0])) / KV_MODEL_CHUNK;
    last = (from + n - 1 - (m->gap[entry][1] - m->gap[entry][0])) / KV_MODEL_CHUNK;
    for (int i = first; moved < n && i <= last; i++) need += kv_model_holders(m, m->page[entry][i]) > 1;
    if (need > kv_model_free_pages(m)) return ATTN_E_FULL;
    for (int i = first; moved < n && i <= last; i++)      /* pages that are written to become unshared */
        if (kv_model_holders(m, m->page[entry][i]) > 1) m->page[entry][i] = m->pages_so_far++;
    for (int i = moved; i < n; i++) {
        memcpy(kv_model_k(m, entry, from + i), kv_model_k(m, entry, rows[i]), m->k_row * sizeof(float));
        memcpy(kv_model_v(m, entry, from + i), kv_model_v(m, entry, rows[i]), m->v_row * sizeof(float));
    }
    kv_model_cut(m, entry, from + n);
    return ATTN_OK;
}

/* Of keys pinned .. before - 1 the whole pages: *from .. *to - 1; 0 when there are none. */
KV_MODEL int kv_model_whole(int pinned, int before, int *from, int *to)
{
    for (*from = 0; *from < pinned; *from += KV_MODEL_CHUNK) { }
    for (*to = 0; *to + KV_MODEL_CHUNK <= before; *to += KV_MODEL_CHUNK) { }
    return *from < *to;
}

KV_MODEL attn_status kv_model_forget(kv_model *m, int entry, int pinned, int before)
{
    int from, to;
    if (entry < -1 || entry >= m->shape.batch) return ATTN_E_MAP;
    for (int b = 0; b < m->shape.batch; b++) {
        const int *gap = m->gap[b];
        if (entry != -1 && entry != b) continue;
        if (pinned < 0 || pinned > m->length[b] || before > m->length[b])
            return ATTN_E_LENGTHS;
        if (kv_model_whole(pinned, before, &from, &to) && gap[0] < gap[1] &&
            (from > gap[1] || to < gap[0]))
            return ATTN_E_LENGTHS;        /* a second run */
    }
    if (!kv_model_whole(pinned, before, &from, &to)) return ATTN_OK;
    for (int b = 0; b < m->shape.batch; b++) {
        const int held = kv_model_pages(m, b);
        int old[2], stay = 0, at = 0;
        if (entry != -1 && entry != b) continue;
        memcpy(old, m->gap[b], sizeof old);
        for (int i = 0; i < held; i++, at += KV_MODEL_CHUNK) {
            if (old[0] < old[1] && at == old[0]) at = old[1];
            if (at < from || at >= to) m->page[b][stay++] = m->page[b][i];
        }
        if (old[0] == old[1]) old[0] = from, old[1] = to;
        m->gap[b][0] = old[0] < from ? old[0] : from;
        m->gap[b][1] = old[1] > to ? old[1] : to;
        kv_model_empty(m, b, m->gap[b][0], m->gap[b][1]);
    }
    return ATTN_OK;
}

/* Entry `to` becomes an entry of another model of this shape, or of this one: rows, not pages. */
KV_MODEL void kv_model_become(kv_model *m, int to, const kv_model *from, int entry)
{
    if (m == from && to == entry) return;
    kv_model_room(m, from->length[entry] + KV_MODEL_SPARE);
    memcpy(kv_model_k(m, to, 0), kv_model_k(from, entry, 0),
           (size_t)from->length[entry] * m->k_row * sizeof(float));
    memcpy(kv_model_v(m, to, 0), kv_model_v(from, entry, 0),
           (size_t)from->length[entry] * m->v_row * sizeof(float));
    kv_model_empty(m, to, from->length[entry], m->rows);
    m->length[to] = from->length[entry];
    memcpy(m->gap[to], from->gap[entry], sizeof m->gap[to]);
}

KV_MODEL attn_status kv_model_copy(kv_model *m, int to, int from, int length)
{
    if (to < 0 || to >= m->shape.batch || from < 0 || from >= m->shape.batch) return ATTN_E_MAP;
    if (!kv_model_ends(m, from, length)) return ATTN_E_LENGTHS;
    kv_model_become(m, to, m, from);
    memmove(m->page[to], m->page[from], (size_t)kv_model_pages(m, from) * sizeof(int));
    kv_model_cut(m, to, length);
    return ATTN_OK;
}

KV_MODEL attn_status kv_model_reorder(kv_model *m, const int *map)
{
    kv_model old;
    if (!map) return ATTN_E_NULL;
    for (int b = 0; b < m->shape.batch; b++)
        if (map[b] < 0 || map[b] >= m->shape.batch) return ATTN_E_MAP;
    old = kv_model_clone(m);
    for (int b = 0; b < m->shape.batch; b++) {
        kv_model_become(m, b, &old, map[b]);
        memcpy(m->page[b], old.page[map[b]], (size_t)kv_model_pages(&old, map[b]) * sizeof(int));
    }
    kv_model_free(&old);
    return ATTN_OK;
}

/* ---- saved and looked at -------------------------------------------------------------------- */
KV_MODEL size_t kv_model_saved(const kv_model *m, int entry)
{
    const size_t k = (size_t)m->shape.kv_heads * attn_stored_bytes((size_t)m->shape.head_dim, m->shape.k_storage);
    const size_t v = (size_t)m->shape.kv_heads * attn_stored_bytes((size_t)m->shape.v_head_dim, m->shape.v_storage);
    const size_t row = k + (m->shape.v_in_k ? 0 : v);
    return 64 + ((size_t)kv_model_keys(m, entry) * row + 3) / 4 * 4;
}

/* Entry `to` becomes the saved entry of another model, or of this one. */
KV_MODEL attn_status kv_model_load(kv_model *m, int to, const kv_model *from, int entry)
{
    const int keys = kv_model_keys(from, entry);
    kv_model without = *m;
    int used;
    m->missing = 0;
    if (to < 0 || to >= m->shape.batch) return ATTN_E_MAP;
    if (m->shape.kv_heads != from->shape.kv_heads || m->shape.head_dim != from->shape.head_dim ||
        m->shape.v_head_dim != from->shape.v_head_dim || m->shape.k_storage != from->shape.k_storage ||
        m->shape.v_storage != from->shape.v_storage || m->shape.v_in_k != from->shape.v_in_k)
        return ATTN_E_SIZE;
    if (keys > m->shape.capacity) return ATTN_E_FULL;
    without.length[to] = 0;
    without.gap[to][0] = without.gap[to][1] = 0;
    used = kv_model_used(&without) + (keys + KV_MODEL_CHUNK - 1) / KV_MODEL_CHUNK;
    if (used > m->shape.pages) {
        m->missing = used - m->shape.pages;
        return ATTN_E_FULL;
    }
    kv_model_grow(&without, to, keys);
    m->pages_so_far = without.pages_so_far;
    kv_model_become(m, to, from, entry);
    return ATTN_OK;
}

KV_MODEL attn_status kv_model_read(const kv_model *m, int entry, int first, int n, float *k, float *v)
{
    if (entry < 0 || entry >= m->shape.batch) return ATTN_E_MAP;
    if (n < 0) return ATTN_E_SIZE;
    if (first < 0 || first > m->length[entry] || n > m->length[entry] - first)
        return ATTN_E_LENGTHS;
    for (int j = first; j < first + n; j++)
        if (j >= m->gap[entry][0] && j < m->gap[entry][1]) return ATTN_E_LENGTHS;
    if (k) memcpy(k, kv_model_k(m, entry, first), (size_t)n * m->k_row * sizeof(float));
    if (v) memcpy(v, kv_model_v(m, entry, first), (size_t)n * m->v_row * sizeof(float));
    return ATTN_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */
KV_MODEL int kv_model_same_lengths(const kv_model *m, const attn_kv *c)
{
    return memcmp(m->length, c->lengths, (size_t)m->shape.batch * sizeof(int)) == 0;
}

/* The same call for the model: plain rows, and their lengths by entry of the QUERIES. */
KV_MODEL attn_args kv_model_args(const kv_model *m, const attn_args *a, int *lengths)
{
    attn_args p = *a;
    int longest = 0;
    for (int b = 0; b < a->batch; b++) {
        lengths[b] = a->k_lengths ? a->k_lengths[b] : m->length[a->k_map ? a->k_map[b] : b];
        if (lengths[b] > longest) longest = lengths[b];
    }
    p.kv = NULL;
    p.k = m->k;
    p.v = m->v;
    p.n_k = a->n_k ? a->n_k : longest;
    p.k_lengths = lengths;
    p.k_batch = m->shape.batch;
    p.kv_heads = m->shape.kv_heads;
    p.head_dim = m->shape.head_dim;
    p.v_head_dim = m->shape.v_head_dim;
    p.k_stride[0] = m->rows * (ptrdiff_t)m->k_row, p.k_stride[1] = (ptrdiff_t)m->k_row;
    p.v_stride[0] = m->rows * (ptrdiff_t)m->v_row, p.v_stride[1] = (ptrdiff_t)m->v_row;
    p.k_stride[2] = m->shape.head_dim, p.v_stride[2] = m->shape.v_head_dim;
    return p;
}

KV_MODEL int kv_model_forgotten(const kv_model *m, const attn_args *a, int b, int j)
{
    const int *gap = m->gap[a->k_map ? a->k_map[b] : b];
    return j >= gap[0] && j < gap[1];
}

/* Hides forgotten keys from every row by keep bytes (NULL if there are none) that the caller frees. Keep bytes of `a`
   must be packed. */
KV_MODEL unsigned char *kv_model_hide(const kv_model *m, attn_args *plain)
{
    const int *own = plain->keep_shape;
    const int of_entry = plain->keep && own[0] > 1, of_head = plain->keep && own[1] > 1;
    const int of_row = plain->keep && (own[2] > 1 || !own[2]);
    const int heads = of_head ? plain->heads : 1, rows = of_row ? plain->n_q : 1;
    unsigned char *keep, *to;
    int some = 0;
    for (int b = 0; b < m->shape.batch; b++) some |= m->gap[b][0] < m->gap[b][1];
    if (!some) return NULL;
    to = keep = (unsigned char *)kv_model_memory((size_t)(plain->batch * heads * rows) *
                                                 (size_t)plain->n_k);
    for (int b = 0; b < plain->batch; b++)
        for (int h = 0; h < heads; h++)
            for (int i = 0; i < rows; i++)
                for (int j = 0; j < plain->n_k; j++) {
                    const int place = ((of_entry ? b : 0) * heads + h) * rows + i;
                    *to++ = (unsigned char)(!kv_model_forgotten(m, plain, b, j) &&
                                            (!plain->keep || plain->keep[place * plain->n_k + j]));
                }
    plain->keep = keep;
    plain->keep_shape[0] = plain->batch;
    plain->keep_shape[1] = heads;
    plain->keep_shape[2] = rows;
    return keep;
}

/* RAW and CAPPED show the scores of hidden keys, but forgotten keys have no scores. */
KV_MODEL void kv_model_hide_scores(const kv_model *m, const attn_args *plain)
{
    float *w = plain->weights;
    if (!w || (plain->weights_stage != ATTN_SCORES_RAW && plain->weights_stage != ATTN_SCORES_CAPPED))
        return;
    for (int b = 0; b < plain->batch; b++)
        for (int i = 0; i < plain->heads * plain->n_q; i++)
            for (int j = 0; j < plain->n_k; j++, w++)
                if (kv_model_forgotten(m, plain, b, j)) *w = bits_float(0xFF800000u);
}

#endif
