/* 07_pictures.c

   The question: How do masks and weights become pictures?
   What you will see: the names of the pictures it writes, which are those of the README.

   Run:  cc -O2 -I. examples/07_pictures.c && ./a.out examples/pictures

   (It overwrites the pictures of the README with the same ones; any other folder that exists will do.)

   Where people go wrong: a window counts the row's own key, so "left 3" is the own key and two before it.

   Further reading: the README of flash-attention, github.com/Dao-AILab/flash-attention: causal and window as 0 and 1.

   Output:
       three_masks.svg
       window.svg
       weights.svg
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include "svg.h"
#include <stdlib.h>

static const char *const number[] = { "0", "1", "2", "3", "4", "5", "6", "7" };
static const char *folder = "pictures";

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

static FILE *picture(const char *name, int width, int height)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.svg", folder, name);
    FILE *f = svg_open(path, width, height);
    if (!f) { fprintf(stderr, "cannot write %s\n", path); exit(1); }
    printf("%s.svg\n", name);
    return f;
}

static void done(FILE *f) { if (!svg_close(f)) { fprintf(stderr, "the disk is full\n"); exit(1); } }

static void legend(FILE *f, int y, int padding, const char *remark)
{
    svg_cell(f, 22, y, 'V');
    svg_text(f, 54, y + 17, 0, "s", "visible");
    svg_cell(f, 114, y, 'H');
    svg_text(f, 146, y + 17, 0, "s", padding ? "hidden: the future" : "hidden");
    if (padding) {
        svg_cell(f, 270, y, 'P');
        svg_text(f, 302, y + 17, 0, "s", "hidden: padding");
    }
    svg_text(f, padding ? 420 : 210, y + 17, 0, "s", remark);
}

static void three_masks(void)
{
    enum { PAD, S = 6, T = 8 };
    static const int source[S] = { 1, 2, 3, 4, 5, PAD }, target[T] = { 1, 2, 3, 4, 5, 6, PAD, PAD };
    static const char *const s[S] = { "<s>", "Mi", "chiamo", "Luke", "</s>", "<pad>" };
    static const char *const t[T] = { "<s>", "My", "name", "is", "Luke", "</s>", "<pad>", "<pad>" };
    float e[S * S], d[T * T], d_pad[T * T], x[T * S], causal[T * T];
    ok(attn_mask_padding(e, source, PAD, 1, S));
    ok(attn_mask_padding(d, target, PAD, 1, T));
    ok(attn_mask_padding(d_pad, target, PAD, 1, T));
    ok(attn_mask_causal(causal, T, T, 0));
    ok(attn_mask_merge(d, 1, causal, 1, T, T));
    ok(attn_mask_cross(x, source, PAD, 1, T, S));

    FILE *f = picture("three_masks", 770, 366);
    svg_mask(f,  22, 20, "Encoder self-attention", "M_e: padding", e, e, S, S, s, s);
    svg_mask(f, 248, 20, "Decoder self-attention", "M_d: causal and padding", d, d_pad, T, T, t, t);
    svg_mask(f, 530, 20, "Cross-attention", "M_x: padding of the source", x, x, T, S, t, s);
    legend(f, 326, 1, "rows are queries, columns are keys");
    done(f);
}

static void window(void)
{
    float m[8 * 8], by[8 * 8];
    FILE *f = picture("window", 808, 344);
    ok(attn_mask_causal(m, 8, 8, 0));
    ok(attn_mask_window(by, 8, 8, 3, 0, 0));
    ok(attn_mask_merge(m, 1, by, 1, 8, 8));
    svg_mask(f, 22, 20, "causal, left 3", "3 keys, the own one counted", m, NULL, 8, 8, number, number);
    ok(attn_mask_window(m, 8, 8, 3, 2, 0));
    svg_mask(f, 284, 20, "left 3, right 2", "both count the own key", m, NULL, 8, 8, number, number);
    ok(attn_mask_window(m, 4, 8, 3, 1, 4));
    svg_mask(f, 546, 20, "left 3, right 1", "BOTTOM_RIGHT: 4 rows end with 8 keys", m, NULL, 4, 8, number, number);
    legend(f, 302, 0, "window_left and window_right count the own key; 0 means no limit on that side");
    done(f);
}

static void weights(void)                                      /* the numbers of 06_word_alignment.c */
{
    static const char *const s[3] = { "Der", "Hund", "l\xc3\xa4uft" }, *const t[3] = { "The", "dog", "runs" };
    static const float key[9] = { 1, 0, 0,   0, 1, 0,   0, 0, 1 };
    static const float query[9] = { 2.8332133f, 0.6931472f, 0,   0, 2.0794415f, 0,   0, 1.0986123f, 2.7725887f };
    float out[9], w[9];
    attn_args a = attn_args_for(1, 3, 3, 1, 3);
    a.out = out;
    a.q = query;
    a.k = a.v = key;
    a.scale = 1;
    a.weights = w;
    ok(attn_sdpa(&a));

    FILE *f = picture("weights", 326, 182);
    svg_weights(f, 22, 20, "What the next word looks at", "cross-attention weights; every row sums to 1",
                w, 3, 3, 76, t, s);
    done(f);
}

int main(int argc, char **argv)
{
    if (argc > 1) folder = argv[1];
    three_masks();
    window();
    weights();
    return 0;
}
