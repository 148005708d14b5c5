/* attn_calls.c: attn.h as an implementation among the others, through the calls a user would make. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { FROM_ROWS, FROM_KV };

static const struct ours_kind { attn_backend backend; int from; } kinds[4] = {
    { ATTN_AUTO, FROM_ROWS }, { ATTN_AVX2, FROM_ROWS }, { ATTN_AUTO, FROM_KV }, { ATTN_AVX2, FROM_KV }
};

typedef struct ours {
    const bench_case *c;
    attn_args a;
    attn_kv kv;
    attn_mha mha;
    attn_mha_opts opts;
    void *work;
} ours;

static void must(const char *what, attn_status s)
{
    if (s == ATTN_OK) return;
    fprintf(stderr, "bench: %s: %s\n", what, attn_status_str(s));
    exit(1);
}

static const char *ours_open(const bench_peer *p, const bench_setup *s)
{
    const struct ours_kind *k = (const struct ours_kind *)p->self;
    attn_backend list[8];
    int n = attn_backends(list, 8);
    if (k->backend == ATTN_AUTO) return s->avx2 && list[0] == ATTN_AVX512 ? "" : NULL;
    for (int i = 0; i < n && i < 8; i++)                  /* a separate row only if it differs from the automatic one */
        if (list[i] == k->backend) return i || s->avx2 ? NULL : "";
    return "";
}

/* The cache as a decoder leaves it: its rows were appended one by one. */
static void ours_fill(ours *o, int keys)
{
    const attn_args *a = &o->c->a;
    attn_kv_args shape = { 0 };
    shape.batch = a->batch;
    shape.kv_heads = a->kv_heads;
    shape.head_dim = a->head_dim;
    shape.capacity = a->n_k;
    shape.k_storage = shape.v_storage = o->c->storage;
    must("attn_kv_init", attn_kv_init(&o->kv, &shape));
    must("attn_kv_append", attn_kv_append(&o->kv, -1, a->k, a->v, keys, 0));
}

static void *ours_prepare(const bench_peer *p, const bench_case *c)
{
    const struct ours_kind *k = (const struct ours_kind *)p->self;
    size_t need;
    ours *o;
    if (k->from == FROM_KV && !c->decode) return NULL;      /* layers choose their source */
    o = (ours *)calloc(1, sizeof *o);
    if (!o) exit(1);
    o->c = c;
    if (c->layer) {
        attn_mha_args m = { 0 };
        m.d_model = c->d_model;
        m.heads = c->a.heads;
        m.w_in = c->w_in;
        m.b_in = c->b_in;
        m.w_o = c->w_o;
        m.b_o = c->b_o;
        m.storage = c->storage;
        must("attn_mha_init", attn_mha_init(&o->mha, &m));
        o->opts.attn.backend = k->backend;
        o->opts.attn.exec = c->a.exec;
        if (c->layer != LAYER_SELF) ours_fill(o, c->layer == LAYER_SELF_STEP ? c->a.n_k - 1 : c->a.n_k);
        {
            const attn_mha_call call = c->layer == LAYER_SELF ? ATTN_MHA_SELF
                                     : c->layer == LAYER_SELF_STEP ? ATTN_MHA_SELF_STEP : ATTN_MHA_CROSS_STEP;
            need = attn_mha_workspace(&o->mha, call, 1, c->a.n_q, c->a.n_k, &o->opts);
        }
        if (need == (size_t)-1) must("attn_mha_workspace", ATTN_E_SIZE);
        o->opts.attn.work = o->work = bench_alloc(need);
        o->opts.attn.work_size = need;
        return o;
    }
    o->a = c->a;
    o->a.backend = k->backend;
    if (k->from == FROM_KV) {
        ours_fill(o, c->a.n_k);
        o->a.kv = &o->kv;
        o->a.k = o->a.v = NULL;
    }
    need = attn_sdpa_workspace(&o->a);
    if (need == (size_t)-1) must("attn_sdpa_workspace", ATTN_E_SIZE);
    o->a.work = o->work = bench_alloc(need);
    o->a.work_size = need;
    return o;
}

static void ours_run(void *job)
{
    ours *o = (ours *)job;
    const bench_case *c = o->c;
    switch (c->layer) {
    case LAYER_SELF:
        must("attn_mha_self", attn_mha_self(&o->mha, c->a.out, c->x, 1, c->a.n_q, &o->opts));
        break;
    case LAYER_CROSS_STEP:
        must("attn_mha_cross_step", attn_mha_cross_step(&o->mha, c->a.out, c->x, 1, c->a.n_q, &o->kv, &o->opts));
        break;
    case LAYER_SELF_STEP:
        must("attn_mha_self_step", attn_mha_self_step(&o->mha, c->a.out, c->x, 1, c->a.n_q, &o->kv, &o->opts));
        must("attn_kv_truncate", attn_kv_truncate(&o->kv, -1, c->a.n_k - 1));
        break;
    default:
        must("attn_sdpa", attn_sdpa(&o->a));
    }
}

static void ours_release(void *job)
{
    ours *o = (ours *)job;
    if (o->c->layer) attn_mha_free(&o->mha);
    attn_kv_free(&o->kv);
    free(o->work);
    free(o);
}

#define OURS(name, i) { name, ours_open, ours_prepare, ours_run, NULL, NULL, ours_release, NULL, \
                        (void *)(size_t)&kinds[i] }
const bench_peer peer_attn = OURS("attn", 0);
const bench_peer peer_attn_avx2 = OURS("attn-avx2", 1);
const bench_peer peer_attn_kv = OURS("attn-kv", 2);
const bench_peer peer_attn_kv_avx2 = OURS("attn-kv-avx2", 3);
