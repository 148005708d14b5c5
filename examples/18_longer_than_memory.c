/* 18_longer_than_memory.c

   The question: What if keys and values are in a file that is larger than memory?
   What you will see: the memory for files of any size, and pieces that give the bits of one call.

   Run:  cc -O2 -I. examples/18_longer_than_memory.c && ./a.out

   Where people go wrong: they attend to each piece of the file alone and average the answers, which is wrong, or merge
   them by log-sum-exp, which gives other bits for every size of a piece. Here a carry goes from piece to piece: the
   state of every row, v_head_dim + 4 floats a head. Pieces of n * 128 keys give the bits of one call over everything.

   Further reading: Milakov and Gimelshein, arxiv.org/abs/1805.02867: the running maximum and sum that a carry is.

   Output:
         keys        file   the program holds
         1000      256000   ### bytes
        10000     2560000   ### bytes
       100000    25600000   ### bytes
       against one call over 5000 keys:
       pieces of  256 keys   the same bits
       pieces of 1280 keys   the same bits
       pieces of  250 keys   right to rounding: off by less than 1e-6
       answers averaged      off by more than 0.1
*/
#define ATTN_DEBUG
#define ATTN_MALLOC(user, n) ((void)(user), (void)(n), NULL)      /* attn.h gets only `work` */
#define ATTN_FREE(user, p) ((void)(user), (void)(p))
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, HEADS = 4, KV_HEADS = 1, D = 32,
       KEY = 2 * KV_HEADS * D,                                   /* floats of a record: a key, then its value */
       PIECE = 256, LARGEST = 1280, FITS = 5000 };

static float q[ROWS * HEADS * D], piece[LARGEST * KEY], carry[ROWS * HEADS * (D + 4)], out[ROWS * HEADS * D];
static void *work;
static size_t work_size;

static void ok(attn_status s) { if (s) exit(1); }                /* ATTN_DEBUG prints the reason */

/* Pseudo-random numbers in -1 .. 1 in place of a model's; the same on every machine. */
static void fill(float *x, size_t n, unsigned *seed)
{
    for (size_t i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        x[i] = (float)(*seed >> 8) / 8388608.0f - 1.0f;
    }
}

/* A file with `keys` records. It is deleted when it is closed. */
static FILE *file_of(int keys)
{
    FILE *file = tmpfile();
    unsigned seed = 1;
    if (!file) exit(1);
    for (int n, left = keys; left > 0; left -= n) {
        n = left < LARGEST ? left : LARGEST;
        fill(piece, (size_t)n * KEY, &seed);
        if (fwrite(piece, KEY * sizeof(float), (size_t)n, file) != (size_t)n) exit(1);
    }
    rewind(file);
    return file;
}

static attn_args attend_to(const float *keys, int n)
{
    attn_args a = attn_args_for(1, ROWS, n, HEADS, D);
    a.kv_heads = KV_HEADS;
    a.q = q;
    a.k = keys;
    a.v = keys + KV_HEADS * D;
    a.k_stride[1] = a.v_stride[1] = KEY;
    a.out = out;
    a.work = work;
    a.work_size = work_size;
    return a;
}

/* Reads the whole file in pieces of n keys. The number of keys need not be known, so a pipe would also work. */
static void read_and_attend(FILE *file, int n)
{
    attn_args a = attend_to(piece, n);
    rewind(file);
    a.carry_out = carry;
    while ((a.n_k = (int)fread(piece, KEY * sizeof(float), (size_t)n, file)) > 0) {
        ok(attn_sdpa(&a));
        a.carry_in = carry;                                      /* none for the first piece */
    }
    a.carry_out = NULL;                                          /* n_k is 0 now: finish */
    ok(attn_sdpa(&a));
}

static float difference(const float *x, const float *y)
{
    float most = 0;
    for (int i = 0; i < ROWS * HEADS * D; i++) {
        const float apart = x[i] > y[i] ? x[i] - y[i] : y[i] - x[i];
        if (apart > most) most = apart;
    }
    return most;
}

static void compare(FILE *file, int n, const float *expected)
{
    read_and_attend(file, n);
    printf("pieces of %4d keys   ", n);
    if (memcmp(out, expected, sizeof out) == 0) puts("the same bits");
    else if (difference(out, expected) < 1e-6f) puts("right to rounding: off by less than 1e-6");
    else puts("WRONG");
}

int main(void)
{
    unsigned seed = 2;
    fill(q, ROWS * HEADS * D, &seed);
    for (int i = 0; i < ROWS * HEADS * D; i++) q[i] *= 16;       /* rows that attend to few keys, as in a model */

    attn_args largest = attend_to(piece, LARGEST);
    largest.carry_in = largest.carry_out = carry;
    work_size = attn_sdpa_workspace(&largest);
    work = malloc(work_size);
    if (!work) return 1;
    const size_t holds = sizeof q + sizeof piece + sizeof carry + sizeof out + work_size;

    puts("  keys        file   the program holds");
    for (int keys = 1000; keys <= 100000; keys *= 10) {
        FILE *file = file_of(keys);
        read_and_attend(file, PIECE);
        printf("%6d %11ld   %d bytes\n", keys, ftell(file), (int)holds);
        fclose(file);
    }

    /* small enough for one call over everything */
    static float all[FITS * KEY], expected[ROWS * HEADS * D], average[ROWS * HEADS * D];
    FILE *file = file_of(FITS);
    if (fread(all, sizeof all, 1, file) != 1) return 1;
    attn_args a = attend_to(all, FITS);
    a.out = expected;
    ok(attn_sdpa(&a));
    printf("against one call over %d keys:\n", FITS);
    compare(file, PIECE, expected);
    compare(file, LARGEST, expected);
    compare(file, 250, expected);
    fclose(file);

    for (int first = 0; first < FITS; first += 250) {
        a = attend_to(all + first * KEY, 250);
        ok(attn_sdpa(&a));
        for (int i = 0; i < ROWS * HEADS * D; i++) average[i] += out[i] * (250.0f / FITS);
    }
    printf("answers averaged      off by %s than 0.1\n", difference(average, expected) > 0.1f ? "more" : "less");
    free(work);
    return 0;
}
