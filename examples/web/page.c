/* page.c: the computations of the page, as functions for JavaScript. Masks and attention are computed only here.

   examples/web/build.sh compiles it together with listen.c (clang --target=wasm32-wasi, without and with relaxed SIMD).
   It imports only one function of the host, which reports the recogniser's progress. JavaScript writes sizes and token
   numbers into the buffers below and reads matrices back from them. */
#define ATTN_NO_STDIO
#define NDEBUG
static char page_why[512];
static void page_refused(const char *sentence);
#define ATTN_REFUSED(user, status, sentence) ((void)(user), (void)(status), page_refused(sentence))
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "bits.c"
#define TRANSLATE_NO_MAIN
#include "../translate/translate.c"

#define EXPORT(name) __attribute__((export_name(#name)))

/* ---- common parts ------------------------------------------------------------------------------------------------ */

static void page_refused(const char *sentence)
{
    size_t n = strlen(sentence);
    if (n >= sizeof page_why) n = sizeof page_why - 1;
    memcpy(page_why, sentence, n);
    page_why[n] = 0;
}
/* Returns why attn.h rejected the last call: a sentence, never NULL. */
EXPORT(why) const char *page_get_why(void) { return page_why; }
EXPORT(version) int page_version(void) { return attn_version(); }
EXPORT(backend) const char *page_backend(int i)
{
    attn_backend list[8];
    return i < attn_backends(list, 8) ? attn_backend_name(list[i]) : "";
}
/* Returns the hash of one of the forms of bits.c; backend 0: the fastest one, 1: scalar. */
EXPORT(bits) uint64_t page_bits(int form, int scalar) { return bits_of(form, scalar ? ATTN_SCALAR : ATTN_AUTO); }

/* ---- the mask lab ------------------------------------------------------------------------------------------------ */

enum { LAB_BATCH = 4, LAB_N = 32, LAB_CELLS = LAB_BATCH * LAB_N * LAB_N, LAB_DIM = 4 };
enum { LAB_PADDING, LAB_LENGTH, LAB_CAUSAL, LAB_LEFT, LAB_RIGHT, LAB_REASONS };

typedef struct lab_settings {             /* JavaScript writes these, in this order */
    int cross;                            /* 0: rows and keys are the same sequence */
    int batch, n_q, n_k;
    int causal;                           /* attn_causal */
    int padding;                          /* 1: keys whose token is 0 are hidden */
    int left, right;                      /* window; 0: unlimited */
    int keys;                             /* number of keys that exist; negative: all */
    int offset;                           /* q_pos */
    int row_ids[LAB_BATCH * LAB_N], key_ids[LAB_BATCH * LAB_N];       /* token numbers; 0 is padding */
} lab_settings;

static lab_settings lab;
static float lab_m[LAB_CELLS], lab_part[LAB_CELLS], lab_seen[LAB_CELLS];
static float lab_outs[LAB_BATCH * LAB_N * LAB_DIM], lab_lses[LAB_BATCH * LAB_N];
static unsigned char lab_why[LAB_CELLS];

EXPORT(lab) lab_settings *lab_get(void) { return &lab; }
EXPORT(lab_matrix) const float *lab_get_matrix(void) { return lab_m; }
EXPORT(lab_reasons) const unsigned char *lab_get_reasons(void) { return lab_why; }
EXPORT(lab_out) const float *lab_get_out(void) { return lab_outs; }
EXPORT(lab_lse) const float *lab_get_lse(void) { return lab_lses; }

static int lab_keys(void) { return lab.keys < 0 ? lab.n_k : lab.keys; }
static int lab_pos(void) { return lab.offset + (lab.causal == ATTN_CAUSAL_BOTTOM_RIGHT ? lab_keys() - lab.n_q : 0); }

/* One reason for hiding as a separate matrix, [batch][n_q][n_k], or [n_q][n_k] for all entries (then *by_batch is 1) */
static attn_status lab_one(int reason, float *m, int *by_batch)
{
    int lengths[LAB_BATCH];
    *by_batch = reason == LAB_PADDING || reason == LAB_LENGTH ? lab.batch : 1;
    for (int b = 0; b < LAB_BATCH; b++) lengths[b] = lab_keys();
    switch (reason) {
    case LAB_PADDING:
        return lab.cross ? attn_mask_cross(m, lab.key_ids, 0, lab.batch, lab.n_q, lab.n_k)
                         : attn_mask_padding(m, lab.key_ids, 0, lab.batch, lab.n_k);
    case LAB_LENGTH: return attn_mask_lengths(m, lengths, lab.batch, lab.n_q, lab.n_k);
    case LAB_CAUSAL: return attn_mask_causal(m, lab.n_q, lab.n_k, lab_pos());
    case LAB_LEFT: return attn_mask_window(m, lab.n_q, lab.n_k, lab.left, 0, lab_pos());
    default: return attn_mask_window(m, lab.n_q, lab.n_k, 0, lab.right, lab_pos());
    }
}

/* The matrix of these settings, and for every cell the set of reasons that hide it: bit r for reason r. The first
   matrix is that of the lengths, which hides nothing when all keys exist; the others are merged into it. */
EXPORT(lab_draw) int lab_draw(void)
{
    const int wanted[LAB_REASONS] = { lab.padding, 1, lab.causal, lab.left, lab.right };
    const int cells = lab.n_q * lab.n_k;
    int by_batch;
    memset(lab_why, 0, sizeof lab_why);
    attn_status s = lab_one(LAB_LENGTH, lab_m, &by_batch);
    for (int r = 0; r < LAB_REASONS && s == ATTN_OK; r++) {
        if (!wanted[r]) continue;
        s = lab_one(r, lab_part, &by_batch);
        if (s == ATTN_OK) s = attn_mask_merge(lab_m, lab.batch, lab_part, by_batch, lab.n_q, lab.n_k);
        for (int i = 0; i < lab.batch * cells && s == ATTN_OK; i++)
            if (lab_part[by_batch == 1 ? i % cells : i] < 0) lab_why[i] |= (unsigned char)(1 << r);
    }
    return s;
}

static float lab_number(int id, int stream, int x) { return bits_number((uint32_t)(id * 7 + stream), (uint32_t)x); }

/* A call of attn_sdpa with the same settings as OPTIONS, no causal or window matrix: its visible keys must be those of
   the matrix. Returns the number of empty rows, -1 if the call was rejected, -2 if a cell differs from lab_draw's. */
EXPORT(lab_call) int lab_call(void)
{
    static float q[LAB_BATCH * LAB_N * LAB_DIM], k[LAB_BATCH * LAB_N * LAB_DIM], v[LAB_BATCH * LAB_N * LAB_DIM];
    int lengths[LAB_BATCH], by_batch;
    size_t empty = 0;
    for (int i = 0; i < lab.batch * lab.n_q * LAB_DIM; i++)
        q[i] = lab_number(lab.row_ids[i / LAB_DIM], 1, i % LAB_DIM);
    for (int i = 0; i < lab.batch * lab.n_k * LAB_DIM; i++) {
        k[i] = lab_number(lab.key_ids[i / LAB_DIM], 2, i % LAB_DIM);
        v[i] = lab_number(lab.key_ids[i / LAB_DIM], 3, i % LAB_DIM);
    }
    for (int b = 0; b < LAB_BATCH; b++) lengths[b] = lab_keys();
    attn_args a = attn_args_for(lab.batch, lab.n_q, lab.n_k, 1, LAB_DIM);
    a.out = lab_outs;
    a.q = q;
    a.k = k;
    a.v = v;
    a.causal = (attn_causal)lab.causal;
    a.window_left = lab.left;
    a.window_right = lab.right;
    a.q_pos = lab.offset;
    if (lab.keys >= 0) a.k_lengths = lengths;
    if (lab.padding) {
        if (lab_one(LAB_PADDING, lab_part, &by_batch) != ATTN_OK) return -1;
        a.mask = lab_part;
        a.mask_shape[0] = lab.batch;
        a.mask_shape[1] = 1;
        a.mask_shape[2] = lab.n_q;
    }
    a.weights = lab_seen;
    a.weights_stage = ATTN_SCORES_BIASED;                             /* -inf at hidden keys */
    a.lse = lab_lses;
    a.masked_rows = &empty;
    if (attn_sdpa(&a) != ATTN_OK) return -1;
    for (int i = 0; i < lab.batch * lab.n_q * lab.n_k; i++)
        if ((lab_seen[i] < -1e30f) != (lab_m[i] < 0)) return -2;
    return (int)empty;
}

/* ---- the translator: translate.c, and its weights ---------------------------------------------------------------- */

enum { TR_PADS = 3 };                     /* pieces of padding after the sentence, for mistakes that need some */
/* Common mistakes, as in broken.js; FIXED + i has the same buffers as i, and attn.h's masks */
enum { TR_FINE, TR_CAUSAL, TR_SEEN, TR_NOTHING, TR_NAN, TR_FIXED };

static translator tr;
static unsigned char *tr_file;
static const char *tr_wrong = "";
static char tr_sentence[LONGEST], tr_name[LONGEST];
static int tr_read[MOST], tr_written[MOST], tr_n_written;
static int tr_n_weights;
static search tr_search;
static float *tr_seen;                    /* [decoder][heads][n_written][source] */

/* Returns room for the bytes of a model, to be filled before tr_load; NULL: out of memory. */
EXPORT(tr_room) unsigned char *tr_get_room(int size) { return tr_file = malloc((size_t)size); }
/* Returns 0, or -1 if the model was rejected: tr_why has the reason. */
EXPORT(tr_load) int tr_load(int size)
{
    const char *why = translator_load(&tr, tr_file, (size_t)size, ATTN_F16);
    tr_n_weights = why ? 0 : (size - 44 - (int)word_at(tr_file + 12, 4) - 4 * (tr.words - JOINS)) / 2;
    free(tr_file);
    tr_file = NULL;
    if (why) { tr_wrong = why; return -1; }
    tr_seen = malloc(sizeof(float) * (size_t)(tr.decoder * tr.heads) * MOST * MOST);
    tr_wrong = "there is not enough memory for it";
    return tr_seen ? 0 : -1;
}
EXPORT(tr_why) const char *tr_get_why(void) { return tr_wrong; }
EXPORT(tr_sentence) char *tr_get_sentence(void) { return tr_sentence; }       /* LONGEST bytes, to be written */
EXPORT(tr_weights) int tr_weights(void) { return tr_n_weights; }
EXPORT(tr_layers) int tr_layers(void) { return tr.decoder; }
EXPORT(tr_heads) int tr_heads(void) { return tr.heads; }
EXPORT(tr_source) int tr_source(void) { return tr.source; }                   /* pieces read, with padding */
EXPORT(tr_real) int tr_real(void) { return tr.real; }                         /* without it */
EXPORT(tr_seen) const float *tr_get_seen(void) { return tr_seen; }

static mistake tr_mistake(int how)
{
    mistake m = { 0, 0, 0, 0 };
    if (how == TR_FINE) return m;
    if (how % TR_FIXED != TR_CAUSAL) m.pads = TR_PADS;
    if (how % TR_FIXED == TR_NAN) m.pad_value = NAN;
    if (how == TR_CAUSAL) m.causal = 1;
    if (how == TR_SEEN) m.padding = 1;
    if (how == TR_NOTHING || how == TR_NAN) m.padding = 2;
    return m;
}

/* Reads the sentence, with or without a mistake. Returns 0, or -1: tr_why has the reason. */
EXPORT(tr_begin) int tr_begin(int how)
{
    const mistake m = tr_mistake(how);
    tr_wrong = "This sentence is longer than the translator reads.";
    tr_n_written = 0;
    int n = translator_split(&tr, tr_sentence, tr_read);
    if (n == 0 || n + m.pads > MOST) return -1;
    tr_wrong = "The translator could not read this sentence.";
    if (how % TR_FIXED == TR_NOTHING) n = 0;      /* an entry of a batch without a source: only padding */
    search_begin(&tr_search, BEAMS);
    return translator_read(&tr, tr_read, n, &m) == ATTN_OK ? 0 : -1;
}

/* Runs one step of the search for a translation of the sentence read by tr_begin. Returns 1 until it ends. tr_count
   pieces are then available: the best beam so far, at the end the translation. */
EXPORT(tr_step) int tr_step(void)
{
    const int more = search_step(&tr, &tr_search);
    tr_n_written = more < 0 ? 0 : search_best(&tr_search, tr_written);
    return more > 0;
}
EXPORT(tr_count) int tr_count(void) { return tr_n_written; }

/* Computes the weights of every piece, tr_seen, and ends the search. Returns 0 or -1. */
EXPORT(tr_watch) int tr_watch(void)
{
    if (translator_watch(&tr, tr_written, tr_n_written, tr_seen) == ATTN_OK) return 0;
    tr_n_written = 0;
    return -1;
}

/* Returns piece i of the sentence (of its translation) as text; END and padding have names. */
static const char *tr_piece(int id)
{
    if (id == END) return " </s>";
    if (id == PAD) return " <pad>";
    translator_join(&tr, &id, 1, tr_name, (int)sizeof tr_name);
    return tr_name;
}
EXPORT(tr_piece_read) const char *tr_piece_read(int i) { return tr_piece(i < tr.real ? tr_read[i] : PAD); }
EXPORT(tr_piece_written) const char *tr_piece_written(int i) { return tr_piece(tr_written[i]); }
EXPORT(tr_text) const char *tr_text(void)
{
    translator_join(&tr, tr_written, tr_n_written, tr_name, (int)sizeof tr_name);
    return tr_name[0] == ' ' ? tr_name + 1 : tr_name;
}
