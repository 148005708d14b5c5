/* search.h: which token comes next? Whisper's rules for tokens, and the choice of the best or of random ones. */
#ifndef LISTEN_SEARCH_H
#define LISTEN_SEARCH_H
#include "logit_hash.h"
#include "whisper.h"

/* Returns the logarithm of the sum of exp(x): what attention calls lse, of one query (1) and n keys of one number each.
   chances: NULL, or the softmax of x / temperature, [n], which attention calls weights; lse is of x / temperature
   then. */
static float log_sum(whisper *w, const float *x, int n, float temperature, float *chances)
{
    static const float one = 1;
    float out, lse;
    attn_args a = attn_args_for(1, 1, n, 1, 1);
    a.q = &one;
    a.k = a.v = x;
    a.out = &out;
    a.scale = 1 / temperature;
    a.lse = &lse;
    a.weights = chances;
    ok(w, attn_sdpa(&a));
    return lse;
}

typedef struct beam { int n, ids[LONGEST]; float sum; logit_hash hash; } beam;             /* hash: of all its logits */
typedef struct choice { int parent, id; float sum; } choice;

typedef struct task {                                          /* the kind of text to write */
    int prompt[4], n, stamps;                                  /* tokens before the text; 1: with timestamps */
    int hash;                                                  /* 1: compute the hash */
    unsigned long long seed;
    float temperature;
    void (*watch)(const beam *best);                           /* NULL, or called after each token */
} task;

typedef struct search {
    beam live[BEAMS], next[BEAMS], done[2 * BEAMS];
    int n_done, parents[BEAMS];                                /* parents: of next */
    float no_speech;                                           /* log probability of silence */
} search;

static void hide(float *logits, int from, int to)
{
    for (int i = from; i < to; i++) logits[i] = HIDDEN;
}

/* Timestamps come in pairs and never decrease; the text begins with one of at most a second. */
static void stamp_rules(whisper *w, const beam *b, float *logits)
{
    const int last = b->n ? b->ids[b->n - 1] : 0;
    const int pair = last >= w->stamps && (b->n < 2 || b->ids[b->n - 2] >= w->stamps);
    if (b->n == 0) {
        hide(logits, 0, w->stamps);
        hide(logits, w->stamps + 51, w->words);
    } else if (pair) {
        hide(logits, w->stamps, w->words);
    } else {
        int latest = b->n - 1;
        while (b->ids[latest] < w->stamps) latest--;
        hide(logits, w->stamps, b->ids[latest] + (last < w->stamps));
        if (last >= w->stamps) hide(logits, 0, w->end);
        float most = HIDDEN;
        for (int i = 0; i < w->stamps; i++) most = logits[i] > most ? logits[i] : most;
        if (log_sum(w, logits + w->stamps, w->words - w->stamps, 1, NULL) > most) hide(logits, 0, w->stamps);
    }
}

static void rules(whisper *w, const task *t, const beam *b, float *logits)
{
    for (int i = 0; i < w->words; i++) if (w->suppressed[i]) logits[i] = HIDDEN;
    if (b->n == 0) {
        logits[w->end] = HIDDEN;
        if (w->space >= 0) logits[w->space] = HIDDEN;
    }
    if (t->stamps) stamp_rules(w, b, logits);
}

/* Merges the tokens of one beam into list, the `most` best so far; offset is added to each logit. Returns the length
   of list. */
static int choose(const whisper *w, const float *logits, int parent, float offset, choice *list, int n, int most)
{
    for (int id = 0; id < w->words; id++) {
        const float sum = logits[id] + offset;
        if (logits[id] <= HIDDEN || !(sum > -1e30f) || (n == most && !(sum > list[n - 1].sum))) continue;
        int at = n < most ? n++ : n - 1;
        for (; at > 0 && sum > list[at - 1].sum; at--) list[at] = list[at - 1];
        list[at].parent = parent;
        list[at].id = id;
        list[at].sum = sum;
    }
    return n;
}

/* Draws a token with probability proportional to exp(logit / temperature). Returns 0 if no logit is a number. */
static int sample(whisper *w, const float *logits, float offset, task *t, choice *to)
{
    log_sum(w, logits, w->words, t->temperature, w->chances);
    t->seed ^= t->seed << 13;
    t->seed ^= t->seed >> 7;
    t->seed ^= t->seed << 17;
    double left = (double)(t->seed >> 11) / 9007199254740992.0;           /* 0 .. 1 */
    to->id = -1;
    to->parent = 0;
    for (int id = 0; id < w->words; id++) {
        if (!(w->chances[id] > 0)) continue;
        to->id = id;
        left -= (double)w->chances[id];
        if (left < 0) break;
    }
    if (to->id >= 0) to->sum = logits[to->id] + offset;
    return to->id >= 0;
}

/* Moves choices that end to s->done. The other choices, filled up from the second half of the list, become s->next.
   Returns the number of beams in s->next. */
static int divide(const whisper *w, search *s, const choice *list, int n, int beams, int last_step)
{
    int n_next = 0, spare = beams;
    for (int k = 0; k < beams && k < n; k++) {
        choice c = list[k];
        if (c.id == w->end || last_step) {
            beam *done = &s->done[s->n_done++];
            *done = s->live[c.parent];
            if (c.id != w->end) done->ids[done->n++] = c.id;
            done->sum = c.sum;
            while (spare < n && list[spare].id == w->end) spare++;
            if (spare >= n) continue;
            c = list[spare++];
        }
        beam *next = &s->next[n_next];
        *next = s->live[c.parent];
        next->ids[next->n++] = c.id;
        next->sum = c.sum;
        s->parents[n_next++] = c.parent;
    }
    return n_next;
}

/* Applies the rules to the logits of the live beams and lists the best continuations, at most 2 * beams. */
static int continuations(whisper *w, search *s, task *t, int n_live, int beams, choice *list)
{
    int n = 0;
    for (int k = 0; k < n_live; k++) {
        float *logits = w->logits + (size_t)k * (size_t)w->words;
        beam *b = &s->live[k];
        if (t->hash) b->hash = hash_of(b->hash, logits, w->words);
        rules(w, t, b, logits);
        const float offset = b->sum - log_sum(w, logits, w->words, 1, NULL);
        if (t->temperature > 0) n = sample(w, logits, offset, t, list);
        else n = choose(w, logits, k, offset, list, n, 2 * beams);
    }
    return n;
}
#endif
