/* 25_pictures_in_text.c: a picture between words. What is the position of each of its patches?

   Run:  cc -O2 -I. examples/25_pictures_in_text.c && ./a.out

   Vision-language models (Qwen2-VL, Qwen3-VL) rotate by three positions: time, height, width. A word has the same
   position on all three. The patches of a picture share one point in time and have the row and column of the picture;
   the text continues after the largest of them, so 2 x 3 patches take 3 positions of the text and not 6 (M-RoPE). The
   checkpoint determines by which of the three each pair of a head is rotated (mrope_section).

   rope_sections makes one row of a rotation table for each row of the prompt; a layer that has this table takes its
   rows in order. Only the table depends on pictures: masks, caches and steps keep counting rows.

   Further reading: Wang and others, Qwen2-VL, arxiv.org/abs/2409.12191, section 2.1.

   Output:
       row          time height width
       A               0      0     0
       patch 0,0       1      1     1
       patch 0,1       1      1     2
       patch 0,2       1      1     3
       patch 1,0       1      2     1
       patch 1,1       1      2     2
       patch 1,2       1      2     3
       dog             4      4     4
       barks           5      5     5
       the whole prompt, and its rows one by one: the same bits
       the two words without the picture, from position 4 on: the same rotation
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HIGH = 2, WIDE = 3, ROWS = 1 + HIGH * WIDE + 2, POSITIONS = 16, D = 32, HEADS = 2, DIM = D / HEADS };

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* Pseudo-random numbers in -size .. size in place of a model's; the same on every machine. */
static void fill(float *x, int n, float size, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = size * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

/* Three positions for each row of "A <picture> dog barks". */
static void places(int pos[ROWS][3])
{
    int row = 0, at = 0;
    for (int axis = 0; axis < 3; axis++) pos[row][axis] = at;
    row++, at++;
    for (int y = 0; y < HIGH; y++)
        for (int x = 0; x < WIDE; x++, row++) pos[row][0] = at, pos[row][1] = at + y, pos[row][2] = at + x;
    for (at += HIGH > WIDE ? HIGH : WIDE; row < ROWS; row++, at++)
        for (int axis = 0; axis < 3; axis++) pos[row][axis] = at;
}

/* Pair i of a row turns by its position on axis[i]: it takes its columns from the table row of that position. */
static void rope_sections(float *to, int pos[ROWS][3], const int *axis, const float *by_position)
{
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < DIM / 2; i++) {
            const float *from = by_position + pos[r][axis[i]] * DIM;
            to[r * DIM + i] = from[i];
            to[r * DIM + DIM / 2 + i] = from[DIM / 2 + i];
        }
}

int main(void)
{
    /* mrope_section 2, 3, 3: of the 8 pairs of a head two rotate by time, three by height, three by width */
    static const int axis[DIM / 2] = { 0, 0, 1, 1, 1, 2, 2, 2 };
    static float w[4][D * D], x[ROWS * D], whole[ROWS * D], step[D], by_position[POSITIONS * DIM], table[ROWS * DIM];
    int pos[ROWS][3], same = 1;
    char name[20];
    places(pos);
    printf("row          time height width\n");
    for (int r = 0; r < ROWS; r++) {
        const int patch = r - 1;
        sprintf(name, "patch %d,%d", patch / WIDE, patch % WIDE);
        printf("%-12s %4d %6d %5d\n", r == 0 ? "A" : r == ROWS - 2 ? "dog" : r == ROWS - 1 ? "barks" : name, pos[r][0],
               pos[r][1], pos[r][2]);
    }
    ok(attn_rope_table(by_position, POSITIONS, DIM, NULL, 1000000));
    rope_sections(table, pos, axis, by_position);

    attn_mha layer;
    attn_mha_args shape = {0};
    for (unsigned i = 0; i < 4; i++) fill(w[i], D * D, 0.4f, i + 1);
    fill(x, ROWS * D, 1, 9);
    shape.d_model = D;
    shape.heads = HEADS;
    shape.w_q = w[0];
    shape.w_k = w[1];
    shape.w_v = w[2];
    shape.w_o = w[3];
    shape.rope_table = table;
    shape.positions = ROWS;  /* not copied: the next prompt overwrites it */
    ok(attn_mha_init(&layer, &shape));
    attn_mha_opts causal = { .attn.causal = ATTN_CAUSAL_TOP_LEFT };
    ok(attn_mha_self(&layer, whole, x, 1, ROWS, &causal));

    attn_kv cache;
    attn_kv_args room = { .batch = 1, .kv_heads = HEADS, .head_dim = DIM, .capacity = ROWS };
    ok(attn_kv_init(&cache, &room));
    for (int r = 0; r < ROWS; r++) {
        ok(attn_mha_self_step(&layer, step, x + r * D, 1, 1, &cache, NULL));
        same = same && !memcmp(step, whole + r * D, sizeof step);
    }
    printf("the whole prompt, and its rows one by one: %s\n", same ? "the same bits" : "OTHER BITS");

    /* Text alone needs no sections: position p of every axis is row p of the plain table. */
    printf("the two words without the picture, from position 4 on: %s\n",
           memcmp(table + (ROWS - 2) * DIM, by_position + 4 * DIM, 2 * DIM * sizeof *table) ? "ANOTHER ROTATION"
                                                                                            : "the same rotation");
    attn_kv_free(&cache);
    attn_mha_free(&layer);
    return 0;
}
