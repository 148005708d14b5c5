/* stories.c: a Llama-type decoder of 260 thousand weights (llama2.c's stories260K): the published 200 steps, and
 * every other way to compute them. */
#include "models.h"

enum { STEPS = 200, MOST_LAYERS = 16 };

/* karpathy/llama2.c, test_all.py: greedy, 200 steps, no prompt */
static const char published[] =
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, she saw a "
    "big, red ball. She wanted to play with it, but it was too high.\n"
    "Lily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't know what to do. She said, \"I want to "
    "play with your ball, but I can't find it.\"\n"
    "Lily was sad and didn't know what to do. She said, \"I'm sorry, Lily. I didn't know what to do.\"\n"
    "Lily didn't want to help her mom, so she";

/* ---- the files ------------------------------------------------------------------------------------------------ */
static int dim, hidden, layers, heads, kv_heads, head, vocabulary;
static float *weights;                    /* in the file, after the header */
static struct { const float *words, *norm, *q, *k, *v, *o, *ff_norm, *w1, *w2, *w3, *last_norm, *classifier; } at;
static const char *pieces[512];
static int piece_lengths[512];

static int little(const unsigned char *bytes)
{
    return (int)((uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24);
}

static const float *take(size_t *used, size_t all, int a, int b, int c)
{
    const size_t n = (size_t)a * (size_t)b * (size_t)c;
    *used += n;
    if (*used > all) model_broken("stories260K/stories260K.bin", "is shorter than its header says");
    return weights + *used - n;
}

static void read_files(void)
{
    static const char model[] = "stories260K/stories260K.bin", words[] = "stories260K/tok512.bin";
    size_t size, used = 0;
    if (weights) return;
    unsigned char *bytes = model_file(model, &size);
    if (!bytes || size < 28) model_broken(model, "has no header");
    dim = little(bytes), hidden = little(bytes + 4), layers = little(bytes + 8), heads = little(bytes + 12);
    kv_heads = little(bytes + 16), vocabulary = little(bytes + 20);
    if (dim != 64 || hidden != 172 || layers != 5 || heads != 8 || kv_heads != 4 || vocabulary != 512) {
        model_broken(model, "is another model than the one with published numbers");
    }
    head = dim / heads;
    const size_t all = (size - 28) / 4;
    weights = (float *)malloc(all * sizeof *weights);
    if (!weights) abort();
    for (size_t i = 0; i < all; i++) weights[i] = bits_float((uint32_t)little(bytes + 28 + 4 * i));
    free(bytes);
    at.words = take(&used, all, vocabulary, dim, 1);
    at.norm = take(&used, all, layers, dim, 1);
    at.q = take(&used, all, layers, dim, dim);
    at.k = take(&used, all, layers, dim, kv_heads * head);
    at.v = take(&used, all, layers, dim, kv_heads * head);
    at.o = take(&used, all, layers, dim, dim);
    at.ff_norm = take(&used, all, layers, dim, 1);
    at.w1 = take(&used, all, layers, hidden, dim);
    at.w2 = take(&used, all, layers, hidden, dim);
    at.w3 = take(&used, all, layers, hidden, dim);
    at.last_norm = take(&used, all, dim, 1, 1);
    at.classifier = at.words;

    bytes = model_file(words, &size);                             /* kept: the pieces of text point into it */
    if (!bytes || size < 4) model_broken(words, "is missing");
    size_t place = 4;
    for (int i = 0; i < vocabulary; i++) {
        if (size - place < 8) model_broken(words, "is cut off");
        piece_lengths[i] = little(bytes + place + 4);
        place += 8;
        if (piece_lengths[i] < 0 || (size_t)piece_lengths[i] > size - place) model_broken(words, "is cut off");
        pieces[i] = (const char *)bytes + place;
        place += (size_t)piece_lengths[i];
    }
}

/* ---- the model ------------------------------------------------------------------------------------------------ */
enum {
    BY_LAYER,                             /* attn_mha */
    BY_HAND,                              /* linears, attn_rope and attn_sdpa or attn_self_step one by one */
    BY_CARRY,                             /* the same without caches, over 128 keys at a time: carry_in, carry_out */
    BY_PARTS                              /* the same, over separate chunks that are folded in order */
};

typedef struct story {
    attn_mha attention[MOST_LAYERS];
    attn_linear up[MOST_LAYERS], gate[MOST_LAYERS], down[MOST_LAYERS], classifier;
    float *rope;
    int how, window;                      /* 0: no window */
} story;

static void linear(attn_linear *l, int n_in, int n_out, const float *w, attn_storage storage)
{
    attn_linear_args a;
    memset(&a, 0, sizeof a);
    a.n_in = n_in, a.n_out = n_out, a.w = w, a.storage = storage;
    CHECK(attn_linear_init(l, &a) == ATTN_OK);
}

static void story_init(story *s, attn_storage storage)
{
    read_files();
    memset(s, 0, sizeof *s);
    s->rope = guard_floats((size_t)(STEPS * head));
    CHECK(attn_rope_table(s->rope, STEPS, head, NULL, 10000) == ATTN_OK);
    for (int l = 0; l < layers; l++) {
        attn_mha_args a;
        memset(&a, 0, sizeof a);
        a.d_model = dim, a.heads = heads, a.kv_heads = kv_heads, a.storage = storage;
        a.w_q = at.q + l * dim * dim, a.w_k = at.k + l * dim * kv_heads * head;
        a.w_v = at.v + l * dim * kv_heads * head, a.w_o = at.o + l * dim * dim;
        a.rope_table = s->rope, a.positions = STEPS, a.rope_interleaved = 1;
        CHECK(attn_mha_init(&s->attention[l], &a) == ATTN_OK);
        linear(&s->gate[l], dim, hidden, at.w1 + l * hidden * dim, storage);
        linear(&s->up[l], dim, hidden, at.w3 + l * hidden * dim, storage);
        linear(&s->down[l], hidden, dim, at.w2 + l * hidden * dim, storage);
    }
    linear(&s->classifier, dim, vocabulary, at.classifier, storage);
}

static void story_free(story *s)
{
    for (int l = 0; l < layers; l++) {
        attn_mha_free(&s->attention[l]), attn_linear_free(&s->up[l]), attn_linear_free(&s->gate[l]);
        attn_linear_free(&s->down[l]);
    }
    attn_linear_free(&s->classifier);
    guard_free(s->rope);
}

static void caches_init_as(attn_kv *c, attn_storage keys, attn_storage values, int pages)
{
    attn_kv_args a;
    memset(&a, 0, sizeof a);
    a.batch = 1, a.kv_heads = kv_heads, a.head_dim = head, a.capacity = STEPS, a.pages = pages;
    a.k_storage = keys, a.v_storage = values;
    memset(c, 0, MOST_LAYERS * sizeof *c);
    for (int l = 0; l < layers; l++) CHECK(attn_kv_init(&c[l], &a) == ATTN_OK);
}

static void caches_init(attn_kv *c, attn_storage storage, int pages) { caches_init_as(c, storage, storage, pages); }

static void caches_free(attn_kv *c)
{
    for (int l = 0; l < layers; l++) attn_kv_free(&c[l]);
}

#ifdef ATTN_STATE                         /* the header has carries */
static void in_pieces(const attn_args *a, int how)
{
    const int row = a->kv_heads * a->head_dim, parts = (a->n_k + 127) / 128;
    const size_t all = (size_t)(a->heads * a->n_q) * ATTN_STATE(a->head_dim);
    float *states = guard_floats(all), *each = guard_floats(all * (size_t)parts);
    attn_args piece = *a;
    piece.out = NULL, piece.carry_out = states;
    for (int x = 0; how == BY_CARRY && x < a->n_k; x += 128) {
        piece.k = a->k + x * row, piece.v = a->v + x * row, piece.n_k = a->n_k - x < 128 ? a->n_k - x : 128;
        piece.q_pos = -x, piece.carry_in = x > 0 ? states : NULL;
        CHECK(attn_sdpa(&piece) == ATTN_OK);
    }
    if (how == BY_PARTS) {
        piece.parts = parts, piece.carry_out = each;
        CHECK(attn_sdpa(&piece) == ATTN_OK);
        piece.parts = 0, piece.carry_out = states;
        CHECK(attn_fold(&piece, each, parts) == ATTN_OK);
    }
    piece = *a, piece.carry_in = states, piece.n_k = 0;
    CHECK(attn_sdpa(&piece) == ATTN_OK);
    guard_free(states), guard_free(each);
}
#else
static void in_pieces(const attn_args *a, int how) { CHECKF(0, "%d heads by %d: no carries", a->heads, how); }
#endif

/* The attention of a layer without attn_mha, for a program with its own projections. c NULL: all rows at once. */
static void by_hand(const story *s, int l, const way *w, float *y, const float *x, int n, attn_kv *c)
{
    const attn_mha *m = &s->attention[l];
    const int width = kv_heads * head;
    float *q = guard_floats((size_t)(n * dim)), *out = guard_floats((size_t)(n * dim));
    float *k = guard_floats((size_t)(n * width)), *v = guard_floats((size_t)(n * width));
    attn_rope_args r;
    attn_args a = attn_args_for(1, n, c ? 0 : n, heads, head);
    CHECK(attn_linear_run(&m->q, q, x, n, 0, w->exec) == ATTN_OK);
    CHECK(attn_linear_run(&m->k, k, x, n, 0, w->exec) == ATTN_OK);
    CHECK(attn_linear_run(&m->v, v, x, n, 0, w->exec) == ATTN_OK);
    memset(&r, 0, sizeof r);
    r.batch = 1, r.n = n, r.heads = heads, r.head_dim = head, r.rope_table = s->rope, r.positions = STEPS, r.rope_interleaved = 1;
    r.pos = c && c->lengths ? c->lengths[0] : 0;
    r.x = q;
    CHECK(attn_rope(&r) == ATTN_OK);
    r.x = k, r.heads = kv_heads;
    CHECK(attn_rope(&r) == ATTN_OK);
    a.out = out, a.q = q, a.k = k, a.v = v, a.kv_heads = kv_heads, a.window_left = s->window;
    a.backend = w->backend, a.exec = w->exec;
    if (!c) a.causal = ATTN_CAUSAL_TOP_LEFT;
    if (s->how == BY_HAND) CHECK((c ? attn_self_step(c, &a) : attn_sdpa(&a)) == ATTN_OK);
    else in_pieces(&a, s->how);
    CHECK(attn_linear_run(&m->o, y, out, n, 0, w->exec) == ATTN_OK);
    guard_free(q), guard_free(k), guard_free(v), guard_free(out);
}

/* logits [n][vocabulary] of n tokens; caches NULL: they are a whole text */
static void run(const story *s, const way *w, float *logits, const int *tokens, int n, attn_kv *caches)
{
    float *x = guard_floats((size_t)(n * dim)), *y = guard_floats((size_t)(n * dim));
    float *z = guard_floats((size_t)(n * dim));
    float *a = guard_floats((size_t)(n * hidden)), *b = guard_floats((size_t)(n * hidden));
    attn_mha_opts o = way_opts(w);
    o.attn.window_left = s->window;
    if (!caches) o.attn.causal = ATTN_CAUSAL_TOP_LEFT;
    for (int i = 0; i < n; i++) memcpy(x + i * dim, at.words + tokens[i] * dim, (size_t)dim * sizeof *x);
    for (int l = 0; l < layers; l++) {
        attn_kv *c = caches ? &caches[l] : NULL;
        model_norm(y, x, n, dim, at.norm + l * dim, NULL);
        if (s->how != BY_LAYER) by_hand(s, l, w, z, y, n, c);
        else CHECK((c ? attn_mha_self_step(&s->attention[l], z, y, 1, n, c, &o)
                      : attn_mha_self(&s->attention[l], z, y, 1, n, &o)) == ATTN_OK);
        for (int i = 0; i < n * dim; i++) x[i] += z[i];
        model_norm(y, x, n, dim, at.ff_norm + l * dim, NULL);
        CHECK(attn_linear_run(&s->gate[l], a, y, n, 0, w->exec) == ATTN_OK);
        CHECK(attn_linear_run(&s->up[l], b, y, n, 0, w->exec) == ATTN_OK);
        for (int i = 0; i < n * hidden; i++) a[i] = (float)(a[i] / (1 + exp(-(double)a[i]))) * b[i];
        CHECK(attn_linear_run(&s->down[l], z, a, n, 0, w->exec) == ATTN_OK);
        for (int i = 0; i < n * dim; i++) x[i] += z[i];
    }
    model_norm(y, x, n, dim, at.last_norm, NULL);
    CHECK(attn_linear_run(&s->classifier, logits, y, n, 0, w->exec) == ATTN_OK);
    guard_free(x), guard_free(y), guard_free(z), guard_free(a), guard_free(b);
}

/* ---- the story ------------------------------------------------------------------------------------------------ */
static int tokens[STEPS + 1];             /* token 1, and the 200 generated ones */
static float *reference;                  /* [STEPS][vocabulary], generated one by one */
static const way plain;

/* Generates STEPS tokens greedily, step by step through caches. */
static void tell(const story *s, const way *w, attn_storage storage, int *told, float *logits)
{
    attn_kv c[MOST_LAYERS];
    caches_init(c, storage, 0);
    told[0] = 1;
    for (int i = 0; i < STEPS; i++) {
        run(s, w, logits + i * vocabulary, told + i, 1, c);
        told[i + 1] = model_best(logits + i * vocabulary, vocabulary);
    }
    caches_free(c);
}

static void write_text(char *text, size_t size, const int *told)
{
    size_t used = 0;
    for (int i = 1; i <= STEPS; i++) {
        const char *piece = pieces[told[i]];
        int length = piece_lengths[told[i]];
        char byte;
        unsigned value;
        if (told[i] == 1) break;                                  /* an end that the published story lacks */
        if (length == 6 && sscanf(piece, "<0x%2X>", &value) == 1) byte = (char)value, piece = &byte, length = 1;
        if (i == 1 && length && *piece == ' ') piece++, length--; /* no space at the very beginning */
        if (used + (size_t)length >= size) break;
        memcpy(text + used, piece, (size_t)length);
        used += (size_t)length;
    }
    text[used] = 0;
}

static void prepare(void)
{
    story s;
    if (reference) return;
    story_init(&s, ATTN_F32);
    reference = guard_floats((size_t)(STEPS * vocabulary));
    tell(&s, &plain, ATTN_F32, tokens, reference);
    model_bits = hash_bits(model_bits, reference, (size_t)(STEPS * vocabulary));
    story_free(&s);
}

static void step_by_step(void)
{
    char text[2048];
    prepare();
    write_text(text, sizeof text, tokens);
    size_t same = 0;
    while (text[same] && text[same] == published[same]) same++;
    CHECKF(!strcmp(text, published), "another story from character %d on: %.60s", (int)same, text + same);
}

/* All rows have the bits of the reference, and its best tokens are the story. */
static void whole(const story *s, const way *w, const char *how)
{
    float *logits = guard_floats((size_t)(STEPS * vocabulary));
    run(s, w, logits, tokens, STEPS, NULL);
    CHECKF(same_bits(logits, reference, (size_t)(STEPS * vocabulary)), "%s: all at once has other bits", how);
    guard_free(logits);
}

static void pieces_of(const story *s, const way *w, int n, const char *how)
{
    attn_kv c[MOST_LAYERS];
    float *logits = guard_floats((size_t)(STEPS * vocabulary));
    caches_init(c, ATTN_F32, 0);
    for (int i = 0; i < STEPS; i += n) {
        run(s, w, logits + i * vocabulary, tokens + i, STEPS - i < n ? STEPS - i : n, c);
    }
    CHECKF(same_bits(logits, reference, (size_t)(STEPS * vocabulary)), "%s: %d tokens at a time: other bits", how, n);
    caches_free(c);
    guard_free(logits);
}

/* Without caches, in pieces, on threads, on every backend that has fma, as a layer and by hand. */
static void one_answer(void)
{
    attn_backend list[8];
    story s;
    prepare();
    const int n = way_backends(list);
    story_init(&s, ATTN_F32);
    for (int hand = BY_LAYER; hand <= BY_HAND; hand++) {
        const char *how = hand ? "by hand" : "layers";
        const attn_exec exec = test_exec(3);
        const way threads = { ATTN_AUTO, &exec };
        s.how = hand;
        whole(&s, &plain, how);
        whole(&s, &threads, how);
        pieces_of(&s, &plain, 1, how);
        pieces_of(&s, &plain, 7, how);
        pieces_of(&s, &threads, 150, how);
        for (int i = 0; i < n; i++) {
            const way w = { list[i], NULL };
            whole(&s, &w, attn_backend_name(list[i]));
            pieces_of(&s, &w, 64, attn_backend_name(list[i]));
        }
    }
    story_free(&s);
}

/* A rejected draft has no effect. */
static void drafts(void)
{
    story s;
    attn_kv c[MOST_LAYERS];
    int wrong[9];
    prepare();
    float *logits = guard_floats((size_t)(9 * vocabulary));
    story_init(&s, ATTN_F32);
    caches_init(c, ATTN_F32, 0);
    for (int i = 0; i + 9 <= STEPS; i += 5) {
        for (int j = 0; j < 9; j++) wrong[j] = j < 5 ? tokens[i + j] : (tokens[i + j] + 100) % vocabulary;
        run(&s, &plain, logits, wrong, 9, c);
        CHECKF(same_bits(logits, reference + i * vocabulary, (size_t)(5 * vocabulary)), "after the draft at %d", i);
        for (int l = 0; l < layers; l++) CHECK(attn_kv_truncate(&c[l], -1, i + 5) == ATTN_OK);
    }
    caches_free(c);
    story_free(&s);
    guard_free(logits);
}

/* A window through caches, with the keys before it forgotten or not, has the bits of a whole call with it. A page has
   128 keys, so only the small windows release any; in a window of all 200 the story is the published one. */
static void windows(void)
{
    static const int widths[] = { 1, 8, 40, 71, STEPS };
    float *all, *logits;
    story s;
    prepare();
    all = guard_floats((size_t)(STEPS * vocabulary)), logits = guard_floats((size_t)(STEPS * vocabulary));
    story_init(&s, ATTN_F32);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        s.window = widths[i];
        run(&s, &plain, all, tokens, STEPS, NULL);
        const int as_without = same_bits(all, reference, (size_t)(STEPS * vocabulary));
        CHECKF(as_without == (widths[i] == STEPS), "a window of %d", widths[i]);
        CHECKF(same_bits(all, reference, (size_t)(widths[i] * vocabulary)), "first rows, window %d", widths[i]);
        for (int forget = 0; forget <= 1; forget++) {
            attn_kv c[MOST_LAYERS];
            caches_init(c, ATTN_F32, 0);
            for (int t = 0; t < STEPS; t++) {
                run(&s, &plain, logits + t * vocabulary, tokens + t, 1, c);
                for (int l = 0; forget && l < layers; l++) {
                    CHECK(attn_kv_forget(&c[l], 0, 0, t + 2 - widths[i]) == ATTN_OK);
                }
            }
            const int pages = c[0].shape.pages - c[0].free_pages;
            const int let_go = forget && STEPS + 1 - widths[i] >= 128;
            CHECKF(pages == 2 - let_go, "%d pages, window %d", pages, widths[i]);
            CHECKF(same_bits(logits, all, (size_t)(STEPS * vocabulary)), "window %d, forget %d", widths[i], forget);
            caches_free(c);
        }
    }
    story_free(&s);
    guard_free(all), guard_free(logits);
}

/* All tokens at once over the first 128 keys and then the rest, and over each part separately, then merged: with and
   without a window, the bits of one call. */
static void carries(void)
{
#ifdef ATTN_STATE
    static const int widths[] = { 0, 40, 150 };
    attn_backend list[8];
    story s;
    prepare();
    float *all = guard_floats((size_t)(STEPS * vocabulary)), *logits = guard_floats((size_t)(STEPS * vocabulary));
    const int n = way_backends(list);
    story_init(&s, ATTN_F32);
    for (int i = 0; i < 3; i++) {
        s.window = widths[i], s.how = BY_LAYER;
        run(&s, &plain, all, tokens, STEPS, NULL);
        for (s.how = BY_CARRY; s.how <= BY_PARTS; s.how++) {
            for (int b = 0; b < n; b++) {
                const way w = { list[b], NULL };
                run(&s, &w, logits, tokens, STEPS, NULL);
                CHECKF(same_bits(logits, all, (size_t)(STEPS * vocabulary)), "%s, window %d: other bits by %s",
                       attn_backend_name(list[b]), widths[i], s.how == BY_CARRY ? "carries" : "parts");
            }
        }
    }
    story_free(&s);
    guard_free(all), guard_free(logits);
#else
    test_skip("this header has no carry_in and carry_out");
#endif
}

/* Returns the first of the 200 steps whose token differs from the published one; 0: none. */
static int differs_from(const int *told)
{
    for (int i = 1; i <= STEPS; i++) if (told[i] != tokens[i]) return i;
    return 0;
}

/* Weights, the cache and both in 16 bits. Whether the story changes depends on the distance between the two best
   tokens, so the test compares the probabilities of the published tokens (bound: three times the observed error), and
   prints the step at which the story changes. In half it does not. */
static void half_storage(void)
{
    static const struct { attn_storage weights, cache; const char *name; double bound; } kinds[] = {
        { ATTN_F16, ATTN_F32, "weights in half", 0.012 },          { ATTN_F32, ATTN_F16, "cache in half", 0.012 },
        { ATTN_F16, ATTN_F16, "both in half", 0.012 },             { ATTN_BF16, ATTN_F32, "weights in bfloat16", 0.12 },
        { ATTN_F32, ATTN_BF16, "cache in bfloat16", 0.12 },        { ATTN_BF16, ATTN_BF16, "both in bfloat16", 0.12 },
    };
    float *logits;
    int told[STEPS + 1];
    prepare();
    logits = guard_floats((size_t)(STEPS * vocabulary));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        story s;
        attn_kv c[MOST_LAYERS];
        double most = 0;
        story_init(&s, kinds[i].weights);
        tell(&s, &plain, kinds[i].cache, told, logits);
        const int turn = differs_from(told);
        caches_init(c, kinds[i].cache, 0);
        run(&s, &plain, logits, tokens, STEPS, c);                /* of the published story, not of the generated one */
        caches_free(c);
        for (int t = 0; t < STEPS; t++) {
            const double error = fabs(model_log_p(logits + t * vocabulary, vocabulary, tokens[t + 1]) -
                                      model_log_p(reference + t * vocabulary, vocabulary, tokens[t + 1]));
            if (!(error <= most)) most = error;
        }
        if (turn) printf("     %s: another story from step %d on", kinds[i].name, turn);
        else printf("     %s: the same story", kinds[i].name);
        printf("; log-probabilities off by %.1g at most\n", most);
        CHECKF(most < kinds[i].bound, "%s: off by %.2g", kinds[i].name, most);
        CHECKF(turn == 0 || turn > STEPS / 2, "%s: another story from step %d on", kinds[i].name, turn);
        story_free(&s);
    }
    guard_free(logits);
}

/* Weights and caches in 8 bits. Few of the likeliest tokens of the published story differ, and its log-probabilities
   hardly change (observed: 2, 4, 2 and 3 of 200 tokens, -0.006 per token; bounds: two to three times that). At once,
   token by token, on threads and on every backend with fma it has the same bits. */
static void eight_storage(void)
{
    static const struct { attn_storage weights, keys, values; const char *name; } kinds[] = {
        { ATTN_Q8, ATTN_F32, ATTN_F32, "weights" }, { ATTN_Q8, ATTN_Q8, ATTN_F32, "weights and keys" },
        { ATTN_F32, ATTN_Q8, ATTN_Q8, "cache" },    { ATTN_Q8, ATTN_Q8, ATTN_Q8, "weights and cache" },
    };
    static const int pieces_at[] = { STEPS, 1, 7, 64 };
    attn_backend list[8];
    attn_kv c[MOST_LAYERS];
    story s;
    prepare();
    const int n = way_backends(list);
    float *logits = guard_floats((size_t)(STEPS * vocabulary)), *again = guard_floats((size_t)(STEPS * vocabulary));
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        double sum = 0;
        int differ = 0;
        story_init(&s, kinds[i].weights);
        for (int b = 0; b < n; b++) {
            const attn_exec exec = test_exec(3);
            const way w = { list[b], b % 2 ? &exec : NULL };
            for (int k = 0; k < 4; k++) {
                const int rows = pieces_at[k];
                caches_init_as(c, kinds[i].keys, kinds[i].values, 0);
                for (int t = 0; t < STEPS; t += rows)
                    run(&s, &w, again + t * vocabulary, tokens + t, STEPS - t < rows ? STEPS - t : rows, c);
                caches_free(c);
                if (b + k == 0) memcpy(logits, again, (size_t)(STEPS * vocabulary) * sizeof *logits);
                CHECKF(same_bits(logits, again, (size_t)(STEPS * vocabulary)), "%s, %s, %d at a time: other bits",
                       kinds[i].name, attn_backend_name(list[b]), rows);
            }
        }
        for (int t = 0; t < STEPS; t++) {
            const float *x = logits + t * vocabulary, *floats = reference + t * vocabulary;
            differ += model_best(x, vocabulary) != tokens[t + 1];
            sum += model_log_p(x, vocabulary, tokens[t + 1]) - model_log_p(floats, vocabulary, tokens[t + 1]);
        }
        sum /= (double)STEPS;
        printf("     %s in 8 bits: %d of %d likeliest tokens differ; log-probability of a token %+.4f\n", kinds[i].name,
               differ, STEPS, sum);
        CHECKF(differ > 0 && differ <= 8, "%s: %d likeliest tokens differ", kinds[i].name, differ);
        CHECKF(fabs(sum) < 0.018, "%s: log-probabilities off by %.4f", kinds[i].name, sum);
        story_free(&s);
    }
    guard_free(logits), guard_free(again);
}

SUITE(stories) = {
    { "step_by_step", step_by_step, "a decoder with a cache that tells another story than its authors published" },
    { "one_answer", one_answer, "a prompt, a cut, a thread or a backend that changes a bit" },
    { "drafts", drafts, "a rejected draft that leaves something in the cache" },
    { "windows", windows, "a window through a cache, or forgotten keys, that differ from a whole call with it" },
    { "carries", carries, "attention cut into keys 0 to 127 and the others that differs from one call" },
    { "half_storage", half_storage, "weights or caches in 16 bits that lose more than their digits" },
    { "eight_storage", eight_storage, "8 bits that lose more than their digits, or depend on the backend, a cut or a thread" },
    { 0 }
};
