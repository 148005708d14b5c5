/* 14_stories.c

   The question: How much code does a whole trained model of the Llama kind need, read from its file?
   What you will see: without arguments the options below; with a checkpoint a story, and its speed on stderr.

   Run:  cc -O2 -I. examples/14_stories.c && ./a.out

   It reads the checkpoints of karpathy/llama2.c (stories260K.bin, stories15M.bin; the legacy format, version 0), and
   the tokenizer in the same folder, tok512.bin or tokenizer.bin; stories_io.h has the formats. With -P the weights are
   packed once, into a second file. Later runs map that file: they begin at once and share its memory.

       cc -O2 -I. examples/14_stories.c -o stories && ./stories stories260K.bin -P 260K.packed
       cc -O2 -I. -DATTN_THREADS -pthread examples/14_stories.c -o stories && ./stories stories15M.bin -j 4 -16

   Where people go wrong: the rotation. Meta's weights, and so these files, rotate neighbours (2i, 2i + 1); those of
   Hugging Face were permuted to rotate halves (i, i + n/2). The wrong choice writes fluent nonsense. Also the prompt:
   token by token, it reads all weights once per token. Here it is one call, with the same bits.

   Further reading: Eldan and Li, TinyStories, arxiv.org/abs/2305.07759; Touvron and others, LLaMA,
   arxiv.org/abs/2302.13971.

   Output:
       usage: stories checkpoint.bin [options]
         -i text     the beginning of the story           -n 200    tokens, those of the beginning included
         -t 0        temperature; 0: the likeliest token  -p 0.9    of the likeliest ones with this total
         -s 1        seed of the chance                   -z file   tokenizer, else the one beside the checkpoint
         -16         weights and cache in half            -8        weights and cache in 8 bits
         -c          what half and 8 bits change          -P file   packed weights: made once, then mapped
         -j 1        threads (-DATTN_THREADS -pthread)    -h        this list
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "stories_io.h"
#include <time.h>

enum { ROWS = 64 };                                              /* tokens of a prompt at a time */

/* ---- the model ------------------------------------------------------------------------------------------------ */

/* Memory of the packed weights, one part after another. All 0: each init allocates its part. */
typedef struct packing {
    unsigned char *at;                                           /* the next part */
    const char *name;                                            /* file that has the parts; NULL: init fills them */
    size_t size;                                                 /* bytes of all parts so far */
    int measure;                                                 /* 1: add up the sizes only */
} packing;

typedef struct formats { attn_storage weights, keys, values; } formats;

typedef struct teller {
    model m;
    attn_mha *attention;                                         /* [layers], like the arrays below */
    attn_linear *gate, *up, *down, classifier;
    attn_kv *cache;
    attn_mha_opts options;                                       /* work memory and threads, the same for all layers */
    float *rope, *x, *y, *z, *a, *b, *logits;
    int steps;                                                   /* rows of rope */
    packing weights;
} teller;

/* Ends the program if a call was rejected. ATTN_DEBUG has printed the reason. */
static void ok(attn_status s)
{
    if (s) exit(1);
}

/* Moves to the next part. s is the status of the init that made or took this one. */
static void next_part(packing *p, attn_status s, size_t size)
{
    if (s && p->name) refuse(p->name, "a part of it is damaged, or from another version of attn.h: delete it");
    ok(s);
    if (size > (size_t)-1 - 63 - p->size) refuse("this model", "its weights do not fit into the address space");
    p->size += size;
    if (p->at) p->at += size;
}

/* Makes linears[at]. While sizes are measured there are no linears yet. */
static void linear(packing *p, attn_linear *linears, size_t at, int n_in, int n_out, const float *w,
                   attn_storage storage)
{
    attn_linear_args a = {0};
    a.n_in = n_in;
    a.n_out = n_out;
    a.storage = storage;
    const size_t size = attn_linear_size(&a);
    if (p->name) {
        a.packed = p->at;
        a.packed_size = size;
    } else {
        a.w = w;
        a.mem = p->at;
        a.mem_size = size;
    }
    next_part(p, p->measure ? ATTN_OK : attn_linear_init(linears + at, &a), size);
}

/* The attention of layer l. */
static void attention(teller *t, packing *p, size_t l, attn_storage storage)
{
    const model *m = &t->m;
    const size_t dim = (size_t)m->dim, square = dim * dim, flat = dim * (size_t)m->kv_dim;
    attn_mha_args a = {0};
    a.d_model = m->dim;
    a.heads = m->heads;
    a.kv_heads = m->kv_heads;
    a.storage = storage;
    const size_t size = attn_mha_size(&a);
    a.rope_table = t->rope;
    a.positions = t->steps;
    a.rope_interleaved = 1;
    if (p->name) {
        a.packed = p->at;
        a.packed_size = size;
    } else {
        a.w_q = m->q + l * square;
        a.w_k = m->k + l * flat;
        a.w_v = m->v + l * flat;
        a.w_o = m->o + l * square;
        a.mem = p->at;
        a.mem_size = size;
    }
    next_part(p, p->measure ? ATTN_OK : attn_mha_init(&t->attention[l], &a), size);
}

/* Makes all layers, from the checkpoint or from packed parts. With p->measure only p->size changes. */
static void all_weights(teller *t, packing *p, attn_storage storage)
{
    const model *m = &t->m;
    const size_t layers = (size_t)m->layers, ff = (size_t)m->dim * (size_t)m->hidden;
    for (size_t l = 0; l < layers; l++) {
        attention(t, p, l, storage);
        linear(p, t->gate, l, m->dim, m->hidden, m->w1 + l * ff, storage);
        linear(p, t->up, l, m->dim, m->hidden, m->w3 + l * ff, storage);
        linear(p, t->down, l, m->hidden, m->dim, m->w2 + l * ff, storage);
    }
    linear(p, &t->classifier, 0, m->dim, m->words, m->classifier, storage);
}

/* Makes *t of the checkpoint t->m, packing the weights into t->weights. */
static void teller_init(teller *t, int steps, formats f, const attn_exec *exec)
{
    const model *m = &t->m;
    const size_t dim = (size_t)m->dim, layers = (size_t)m->layers;
    t->attention = (attn_mha *)room(layers, sizeof *t->attention);
    t->gate = (attn_linear *)room(3 * layers, sizeof *t->gate);
    t->up = t->gate + layers;
    t->down = t->up + layers;
    t->cache = (attn_kv *)room(layers, sizeof *t->cache);
    t->rope = (float *)room((size_t)steps * (size_t)m->head, sizeof(float));
    t->x = (float *)room(3 * ROWS * dim, sizeof(float));
    t->y = t->x + ROWS * dim;
    t->z = t->y + ROWS * dim;
    t->a = (float *)room(2 * ROWS * (size_t)m->hidden, sizeof(float));
    t->b = t->a + ROWS * (size_t)m->hidden;
    t->logits = (float *)room((size_t)m->words, sizeof(float));
    t->steps = steps;
    ok(attn_rope_table(t->rope, steps, m->head, NULL, 10000));
    all_weights(t, &t->weights, f.weights);

    attn_kv_args keys = {0};
    keys.batch = 1;
    keys.kv_heads = m->kv_heads;
    keys.head_dim = m->head;
    keys.capacity = steps;
    keys.k_storage = f.keys;
    keys.v_storage = f.values;
    for (size_t l = 0; l < layers; l++) ok(attn_kv_init(&t->cache[l], &keys));

    attn_args *o = &t->options.attn;                             /* no call allocates: one work area for all of them */
    o->exec = exec;
    o->work_size = attn_mha_workspace(&t->attention[0], ATTN_MHA_SELF_STEP, 1, ROWS, steps, &t->options);
    o->work = room(o->work_size, 1);
}

/* teller_init with the packed weights in the file `path`, which the first call writes. f holds the parts as long as *t
   is used. */
static void teller_init_packed(teller *t, int steps, formats kept, const attn_exec *exec, const file *checkpoint,
                               file *f, const char *path)
{
    packing all = {0};
    all.measure = 1;
    all_weights(t, &all, kept.weights);
    const packed_head head = packed_of(checkpoint, kept.weights, all.size);
    if (file_is_there(path)) {
        file_need(f, path);
        const char *why = packed_check(&head, f->bytes, f->size);
        if (why) refuse(path, why);
        t->weights.at = f->bytes + sizeof head;
        t->weights.name = path;
        teller_init(t, steps, kept, exec);
    } else {
        unsigned char *parts = aligned_room(all.size, &f->own);
        t->weights.at = parts;
        teller_init(t, steps, kept, exec);
        packed_write(path, &head, parts, all.size);
    }
}

static void teller_free(teller *t)
{
    for (int l = 0; l < t->m.layers; l++) {
        attn_mha_free(&t->attention[l]);
        attn_linear_free(&t->gate[l]);
        attn_linear_free(&t->up[l]);
        attn_linear_free(&t->down[l]);
        attn_kv_free(&t->cache[l]);
    }
    attn_linear_free(&t->classifier);
    free(t->attention);
    free(t->gate);
    free(t->cache);
    free(t->rope);
    free(t->x);
    free(t->a);
    free(t->logits);
    free(t->options.attn.work);
}

/* Returns a * b + c. The product of two floats is exact in double, so it does not matter if a compiler fuses it with
   the sum, and the story is the same everywhere. No other product in this file is added to anything. */
static float mul_add(float a, float b, float c) { return (float)((double)a * b + c); }

/* exp without -lm: 2^k * e^r with r in -0.35 .. 0.35. A NaN gives 0; logits that are NaN end the program. */
static float exp_of(float x)
{
    if (!(x > -87)) return 0;
    if (x > 88) x = 88;
    const int k = (int)mul_add(x, 1.44269504f, x < 0 ? -0.5f : 0.5f);
    const float r = mul_add((float)k, 2.12194440e-4f, mul_add((float)k, -0.693359375f, x));      /* ln 2 in two parts */
    const unsigned bits = (unsigned)(k + 127) << 23;
    float e = 1 / 720.f, power;
    e = mul_add(r, e, 1 / 120.f);
    e = mul_add(r, e, 1 / 24.f);
    e = mul_add(r, e, 1 / 6.f);
    e = mul_add(r, e, 0.5f);
    e = mul_add(r, e, 1);
    e = mul_add(r, e, 1);
    memcpy(&power, &bits, sizeof power);
    return e * power;
}

static void rms_norm(const teller *t, const float *x, const float *weight, int rows)              /* into t->y */
{
    attn_norm_args a = {0};
    a.y = t->y;
    a.x = x;
    a.rows = rows;
    a.n = t->m.dim;
    a.weight = weight;
    a.eps = 1e-5f;
    a.exec = t->options.attn.exec;
    ok(attn_norm(&a));
}

/* Appends n tokens to the text. t->logits become those of the token after the last one. */
static void step(teller *t, const int *tokens, int n)
{
    const model *m = &t->m;
    const attn_exec *exec = t->options.attn.exec;
    const size_t dim = (size_t)m->dim;
    for (int i = 0; i < n; i++) memcpy(t->x + i * m->dim, m->embedding + (size_t)tokens[i] * dim, dim * sizeof(float));
    for (int l = 0; l < m->layers; l++) {
        rms_norm(t, t->x, m->norm + (size_t)l * dim, n);
        ok(attn_mha_self_step(&t->attention[l], t->z, t->y, 1, n, &t->cache[l], &t->options));
        for (int i = 0; i < n * m->dim; i++) t->x[i] += t->z[i];
        rms_norm(t, t->x, m->ff_norm + (size_t)l * dim, n);
        ok(attn_linear_run(&t->gate[l], t->a, t->y, n, 0, exec));
        ok(attn_linear_run(&t->up[l], t->b, t->y, n, 0, exec));
        ok(attn_activate(t->a, t->a, t->b, (size_t)n * (size_t)m->hidden, ATTN_SILU, exec));      /* SwiGLU */
        ok(attn_linear_run(&t->down[l], t->z, t->a, n, 0, exec));
        for (int i = 0; i < n * m->dim; i++) t->x[i] += t->z[i];
    }
    rms_norm(t, t->x + (n - 1) * m->dim, m->last_norm, 1);
    ok(attn_linear_run(&t->classifier, t->logits, t->y, 1, 0, exec));
}

/* ---- the next token ------------------------------------------------------------------------------------------- */

typedef struct chance { double p; int id; } chance;

static int by_chance(const void *a, const void *b)
{
    const double p = ((const chance *)a)->p, r = ((const chance *)b)->p;
    return p < r ? 1 : p > r ? -1 : 0;
}

/* Returns the likeliest token for a temperature of 0; else one of the likeliest tokens that together reach top_p. */
static int pick(const float *logits, int n, float temperature, double top_p, chance *list, unsigned long long *seed)
{
    int best = 0, kept = 0;
    double sum = 0, reached = 0;
    for (int i = 1; i < n; i++) if (logits[i] > logits[best]) best = i;
    if (!(temperature > 0)) return best;
    for (int i = 0; i < n; i++) {
        list[i].id = i;
        sum += list[i].p = (double)exp_of((float)(logits[i] - logits[best]) / temperature);
    }
    qsort(list, (size_t)n, sizeof *list, by_chance);
    while (kept < n && (kept == 0 || reached < top_p * sum)) reached += list[kept++].p;
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    const double wanted = (double)(*seed * 0x2545F4914F6CDD1Dull >> 40) / 16777216 * reached;
    sum = 0;
    for (int i = 0; i < kept; i++) if ((sum += list[i].p) > wanted) return list[i].id;
    return best;
}

/* ---- the program ---------------------------------------------------------------------------------------------- */

static double seconds(void)
{
#ifdef TIME_UTC
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
#else
    return (double)clock() / CLOCKS_PER_SEC;                     /* of all threads together */
#endif
}

typedef struct wish {
    const char *model, *tokenizer, *text, *packed;
    int steps, half, eight, compare, threads;
    float temperature;
    double top_p;
    unsigned long long seed;
    int help;
} wish;

/* Reads a number from least to most. Returns 0 if value is none. */
static int read_number(const char *value, double least, double most, double *to)
{
    char *end;
    *to = strtod(value, &end);
    return end != value && !*end && *to >= least && *to <= most;
}

static int read_whole(const char *value, int *to)
{
    double x = 0;
    if (!read_number(value, 1, 1 << 28, &x)) return 0;
    *to = (int)x;
    return (double)*to == x;
}

static int wish_parse(wish *w, int argc, char **argv)
{
    double x = 0;
    char *end;
    for (int i = 1, fine = 1; i < argc; i++) {
        const char *value = argv[i + 1];                         /* NULL after the last one */
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return w->help = 1;
        if (argv[i][0] != '-') {
            if (w->model) return 0;
            w->model = argv[i];
            continue;
        }
        int *const flag = !strcmp(argv[i], "-16") ? &w->half : !strcmp(argv[i], "-8") ? &w->eight :
                          !strcmp(argv[i], "-c") ? &w->compare : NULL;
        if (flag) {
            *flag = 1;
            continue;
        }
        if (!value || strlen(argv[i]) != 2) return 0;
        switch (argv[i++][1]) {
        case 'i':
            w->text = value;
            break;
        case 'z':
            w->tokenizer = value;
            break;
        case 'n':
            fine = read_whole(value, &w->steps);
            break;
        case 't':
            fine = read_number(value, 0, 100, &x);
            w->temperature = (float)x;
            break;
        case 'p':
            fine = read_number(value, 0, 1, &w->top_p);
            break;
        case 'j':
            fine = read_whole(value, &w->threads);
            break;
        case 's':
            w->seed = strtoull(value, &end, 10);
            fine = !*end;
            break;
        case 'P':
            w->packed = value;
            break;
        default:
            return 0;
        }
        if (!fine) return 0;
    }
    return w->model && w->seed > 0;
}

/* Tells the story and returns its number of tokens; n are there already. */
static int tell(teller *t, const tokenizer *words, const wish *w, int *tokens, int n)
{
    chance *list = (chance *)room((size_t)t->m.words, sizeof *list);
    unsigned long long seed = w->seed;
    const double begin = seconds();
    int done = 0;
    for (int i = 1; i < n; i++) print_token(words, tokens[i], i == 1);
    while (n <= w->steps) {
        for (int rows; done < n; done += rows) {                 /* the whole prompt first, then token by token */
            rows = n - done < ROWS ? n - done : ROWS;
            step(t, tokens + done, rows);
        }
        for (int i = 0; i < t->m.words; i++) {
            if (t->logits[i] - t->logits[i] != 0) refuse(w->model, "its weights lead to infinities");
        }
        tokens[n] = pick(t->logits, t->m.words, w->temperature, w->top_p, list, &seed);
        if (tokens[n] == BEGIN || tokens[n] == END) break;
        print_token(words, tokens[n], n == 1);
        n++;
    }
    puts("");
    if (fflush(stdout)) refuse("standard output", "it cannot be written");   /* before the speed is printed */
    fprintf(stderr, "%d tokens, %.0f a second\n", done, done / (seconds() - begin + 1e-9));
    free(list);
    return n;
}

/* The logarithm of the probability of a token after the last step. Attention calls the logarithm of the sum that a
   softmax divides by lse: of a query of 1 and keys of one number each, which are the logits. */
static float log_p(const teller *t, int token)
{
    static const float one = 1;
    float out, lse;
    attn_args a = attn_args_for(1, 1, t->m.words, 1, 1);
    a.q = &one;
    a.k = a.v = t->logits;
    a.out = &out;
    a.scale = 1;
    a.lse = &lse;
    ok(attn_sdpa(&a));
    return t->logits[token] - lse;
}

/* Reads the story in each format and prints how its next tokens differ from those of floats. */
static void compare_formats(const model *m, const int *tokens, int n, const attn_exec *exec)
{
    static const struct { const char *name; formats kept; } ways[] = {
        { "floats", { ATTN_F32, ATTN_F32, ATTN_F32 } },
        { "half: weights, keys, values", { ATTN_F16, ATTN_F16, ATTN_F16 } },
        { "8 bits: keys, values", { ATTN_F32, ATTN_Q8, ATTN_Q8 } },
        { "8 bits: weights", { ATTN_Q8, ATTN_F32, ATTN_F32 } },
        { "8 bits: weights, keys", { ATTN_Q8, ATTN_Q8, ATTN_F32 } },
        { "8 bits: weights, keys, values", { ATTN_Q8, ATTN_Q8, ATTN_Q8 } },
    };
    int *best = (int *)room((size_t)n, sizeof *best);
    double floats = 0;
    printf("\n%-32s log p of a token    change   likeliest token differs\n", "");
    for (size_t w = 0; w < sizeof ways / sizeof ways[0] && n > 1; w++) {
        teller t = {0};
        double sum = 0;
        int differ = 0;
        t.m = *m;
        teller_init(&t, n, ways[w].kept, exec);
        for (int i = 0; i + 1 < n; i++) {
            step(&t, tokens + i, 1);
            const int id = pick(t.logits, m->words, 0, 0, NULL, NULL);
            if (w == 0) best[i] = id;
            differ += best[i] != id;
            sum += log_p(&t, tokens[i + 1]);
        }
        if (w == 0) floats = sum;
        printf("%-32s %16.4f", ways[w].name, sum / (n - 1));
        if (w) printf("   %+.4f   %d of %d", (sum - floats) / (n - 1), differ, n - 1);
        puts("");
        teller_free(&t);
    }
    free(best);
}

int main(int argc, char **argv)
{
    static const char usage[] =
        "usage: stories checkpoint.bin [options]\n"
        "  -i text     the beginning of the story           -n 200    tokens, those of the beginning included\n"
        "  -t 0        temperature; 0: the likeliest token  -p 0.9    of the likeliest ones with this total\n"
        "  -s 1        seed of the chance                   -z file   tokenizer, else the one beside the checkpoint\n"
        "  -16         weights and cache in half            -8        weights and cache in 8 bits\n"
        "  -c          what half and 8 bits change          -P file   packed weights: made once, then mapped\n"
        "  -j 1        threads (-DATTN_THREADS -pthread)    -h        this list\n";
    wish w = { NULL, NULL, "", NULL, 200, 0, 0, 0, 1, 0, 0.9, 1, 0 };
    const attn_exec *exec = NULL;
    teller t = {0};
    tokenizer words;
    file weights, pieces, packed = {0};
    char beside[1024];
    if (argc < 2) return fputs(usage, stdout) < 0;
    if (!wish_parse(&w, argc, argv)) return fputs(usage, stderr), 2;
    if (w.help) return fputs(usage, stdout) < 0;

    file_need(&weights, w.model);
    const char *why = model_parse(&t.m, weights.bytes, weights.size);
    if (why) refuse(w.model, why);
    if (!w.tokenizer) {                                          /* beside it: tok512.bin for 512 tokens, or */
        const char *slash = strrchr(w.model, '/');
        const int folder = slash ? (int)(slash - w.model) + 1 : 0;
        snprintf(beside, sizeof beside, "%.*stok%d.bin", folder, w.model, t.m.words);
        if (!file_is_there(beside)) snprintf(beside, sizeof beside, "%.*stokenizer.bin", folder, w.model);
        w.tokenizer = beside;
    }
    file_need(&pieces, w.tokenizer);
    why = tokenizer_parse(&words, t.m.words, pieces.bytes, pieces.size);
    if (why) refuse(w.tokenizer, why);

    if (w.steps > t.m.positions) w.steps = t.m.positions;
    int *tokens = (int *)room(strlen(w.text) + (size_t)w.steps + 3, sizeof *tokens);
    const int n = encode(&words, w.text, tokens);
    if (n > w.steps) refuse("-i", "the beginning is longer than the story: -n, or the positions of the model");
#ifdef ATTN_THREADS
    attn_pool *pool = attn_pool_create(w.threads);
    if (!pool) refuse("-j", "the system does not give so many threads");
    const attn_exec threads = attn_pool_exec(pool);
    exec = &threads;
#else
    if (w.threads > 1) refuse("-j", "this was compiled without -DATTN_THREADS -pthread");
#endif
    const attn_storage storage = w.eight ? ATTN_Q8 : w.half ? ATTN_F16 : ATTN_F32;
    const formats kept = { storage, storage, storage };
    if (w.packed) teller_init_packed(&t, w.steps, kept, exec, &weights, &packed, w.packed);
    else teller_init(&t, w.steps, kept, exec);
    const int told = tell(&t, &words, &w, tokens, n);
    if (w.compare) compare_formats(&t.m, tokens, told, exec);
    teller_free(&t);
#ifdef ATTN_THREADS
    attn_pool_destroy(pool);
#endif
    free(tokens);
    tokenizer_free(&words);
    file_close(&packed);
    file_close(&pieces);
    file_close(&weights);
    return 0;
}
