/* check.c: attn__check, which attn_check and every call of attention begin with. Every number in attn_args is arbitrary
 * (sizes, strides, shapes, settings, floats), every pointer NULL or set; no executor. CASE 0: sizes that are accepted by
 * themselves, without lists. 1: one of the sizes is refused. 2: two entries with all lists, of any ints. 3: the same over a
 * cache of two entries. Sentences, the default scale and the comparison of addresses have only contracts. */
#include "prove.h"

/*@ assigns *why; ensures \result == ATTN_E_OPTION; */
static attn_status attn__fail_float(attn__why *why, const char *name, float x, const char *but);
/*@ assigns *why; */
static attn_status attn__check_overlap(attn__why *why, const attn__spans *all);
/*@ assigns \nothing; */
static float attn__default_scale(int head_dim);

static float cells[8];
static unsigned char bytes[8];
static int one_int[1], two_ints[5][2], three_ints[2][3];
static size_t masked;

static int size(int least) { return Frama_C_interval(least, ATTN__SIZE_MAX); }
/* a rejected size: too small, or too large to be rounded up */
static int no_size(int least, int large)
{
    return large ? Frama_C_interval(ATTN__SIZE_MAX + 1, INT_MAX) : Frama_C_interval(INT_MIN, least - 1);
}
static float *floats(void) { return any_int() ? cells : NULL; }
static int *ints(int *list, size_t n) { Frama_C_make_unknown((char *)list, n * sizeof(int)); return any_int() ? list : NULL; }

static void call(const attn_args *a, int contents)
{
    attn__call s;
    attn__why why;
    attn__why_open(&why, "check", NULL);
    if (attn__check(a, &s, &why, contents) == ATTN_OK) Frama_C_show_each_end(s.batch, s.n_q, s.heads);
}

/* everything except sizes and lists */
static void fill(attn_args *a)
{
    Frama_C_make_unknown((char *)a, sizeof *a);
    a->out = floats(); a->q = floats(); a->k = floats(); a->v = floats();
    a->mask = floats(); a->bias = floats(); a->weights = floats(); a->lse = floats();
    a->carry_in = floats(); a->carry_out = floats(); a->alibi_slopes = floats(); a->sinks = floats();
    a->keep = any_int() ? bytes : NULL;
    a->masked_rows = any_int() ? &masked : NULL;
    a->work = floats();
    a->kv = NULL;
    a->user = NULL;
    a->exec = NULL;
    a->q_pos_each = a->q_lengths = a->k_starts = a->k_lengths = a->q_cum = a->k_cum = a->k_map = a->weights_heads = NULL;
}

static void sizes(attn_args *a)
{
    a->batch = size(0); a->n_q = size(0); a->n_k = size(0); a->heads = size(1);
    a->kv_heads = size(0); a->head_dim = size(1); a->v_head_dim = size(0); a->k_batch = size(0);
}

/* of two entries; ragged rows and keys separately, because joining both would lose their bounds */
static void lists(attn_args *a, int q_ragged, int k_ragged)
{
    a->layout = ATTN_BSHD;
    a->batch = 2;
    a->q_pos_each = ints(two_ints[0], 2); a->q_lengths = ints(two_ints[1], 2); a->k_lengths = ints(two_ints[2], 2);
    a->k_starts = ints(two_ints[3], 2); a->k_map = ints(two_ints[4], 2);
    if (q_ragged) { (void)ints(three_ints[0], 3); a->q_cum = three_ints[0]; }
    if (k_ragged) { (void)ints(three_ints[1], 3); a->k_cum = three_ints[1]; }
    a->weights_heads = ints(one_int, 1);
    a->n_weights_heads = Frama_C_interval(INT_MIN, 1);
    a->parts = Frama_C_interval(INT_MIN, 0);     /* attn__check_parts reads lists whose bounds EVA does not remember */
}

/* any lengths; entry 1 has forgotten its second page */
static void cache(attn_kv *c, int *lengths, int *gaps, int *table)
{
    memset(c, 0, sizeof *c);
    c->shape.batch = 2;
    c->shape.kv_heads = size(1); c->shape.head_dim = size(1); c->shape.v_head_dim = size(1);
    c->shape.capacity = size(1);
    c->shape.v_in_k = Frama_C_interval(0, 1);
    lengths[0] = size(0);
    lengths[1] = size(256);
    gaps[0] = gaps[1] = 0;
    gaps[2] = 128; gaps[3] = 256;
    c->lengths = lengths; c->gaps = gaps; c->table = table;
    c->memory = cells;
    c->bytes = sizeof cells;
}

int main(void)
{
    attn_args a;
    attn_kv c;
    int i;
    int lengths[2], gaps[4], table[2] = { 0, 1 };
    fill(&a);
    sizes(&a);
#if CASE == 0
    switch (any_int()) {
    case 0: a.layout = ATTN_BSHD; call(&a, ATTN__CALLS); break;
    case 1: a.layout = ATTN_BHSD; call(&a, ATTN__CALLS); break;
    case 2: a.layout = ATTN_BSHD; call(&a, ATTN__PLANS); break;
    case 3: a.layout = ATTN_BHSD; call(&a, ATTN__PLANS); break;
    case 4: a.layout = ATTN_BSHD; call(&a, ATTN__STATES); break;
    default: a.layout = any_int() ? Frama_C_interval(INT_MIN, -1) : Frama_C_interval(2, INT_MAX); call(&a, ATTN__CALLS);
    }
#elif CASE == 1
    for (i = 0; i < 16; i++) {
        attn_args b = a;
        int *each[] = { &b.batch, &b.n_q, &b.n_k, &b.kv_heads, &b.v_head_dim, &b.k_batch, &b.heads, &b.head_dim };
        *each[i / 2] = no_size(i / 2 > 5, i % 2);
        call(&b, ATTN__CALLS);
    }
#elif CASE == 2
    switch (any_int()) {
    case 0: lists(&a, 0, 0); call(&a, ATTN__CALLS); break;
    case 1: lists(&a, 1, 0); call(&a, ATTN__CALLS); break;
    case 2: lists(&a, 0, 1); call(&a, ATTN__CALLS); break;
    default: lists(&a, 1, 1); call(&a, ATTN__CALLS);
    }
#else
    cache(&c, lengths, gaps, table);
    a.kv = &c;
    a.k_batch = any_int() ? 2 : 0;
    switch (any_int()) {
    case -1: lists(&a, 0, 0); a.k_batch = 1; call(&a, ATTN__CALLS); break;
    case -2: lists(&a, 0, 0); a.k_batch = size(3); call(&a, ATTN__CALLS); break;
    case 0: lists(&a, 0, 0); call(&a, ATTN__PLANS); break;
    default: lists(&a, 0, 0); call(&a, ATTN__CALLS);
    }
#endif
    return 0;
}
