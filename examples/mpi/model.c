/* mpi/model.c: what do the bytes of context_parallel.c mean on a network, with 128k and with 1M keys?

   Run:  cc -O2 -I. examples/mpi/model.c && ./a.out
         ./a.out --measure measures the speed of one core of this machine instead.

   Attention alone, in 32 layers of 32 heads on 8, of 128 floats each; K and V are floats, so a key takes 8 KB a layer.
   Measured: one core (the constants below; Sapphire Rapids, AVX-512, gcc -O2). Given: 32 such cores and 200 GB/s of
   memory a machine, and 50, 20 and 5 microseconds for a message. Assumed: nothing else uses cores, memory or network.

   Output:
       one core: 130 GFLOP/s; a key 0.95 us; the fold of a chunk 0.77 us
       bytes a layer: 16896 a hop, whatever the keys; 8192 a key that travels
                          a token, ms; network's share of it     the prompt, s; waiting's share of it
          keys machines   1 Gbit/s    10 Gbit/s   100 Gbit/s       1 Gbit/s    10 Gbit/s   100 Gbit/s
        131072      1     172.6  0 %    172.6  0 %    172.6  0 %      1083  0 %     1083  0 %     1083  0 %
        131072      2      98.4 12 %     88.8  2 %     87.1  0 %       578  6 %      542  0 %      541  0 %
        131072      4      75.7 42 %     48.9 10 %     44.6  2 %       351 23 %      272  1 %      271  0 %
        131072      8      94.7 76 %     33.3 33 %     24.1  8 %       303 55 %      140  3 %      136  0 %
        131072     16     164.9 93 %     34.5 67 %     15.4 25 %       337 80 %       77 12 %       68  1 %
       1048576      1    1380.7  0 %   1380.7  0 %   1380.7  0 %     69286  0 %    69286  0 %    69286  0 %
       1048576      2     705.2  2 %    695.6  0 %    693.9  0 %     34680  0 %    34644  0 %    34643  0 %
       1048576      4     381.9  8 %    355.0  1 %    350.8  0 %     17402  0 %    17323  0 %    17322  0 %
       1048576      8     250.5 29 %    189.2  6 %    180.0  1 %      8829  2 %     8665  0 %     8661  0 %
       1048576     16     245.6 62 %    115.2 20 %     96.0  4 %      4672  7 %     4339  0 %     4331  0 %
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LAYERS = 32, HEADS = 32, KV_HEADS = 8, D = 128, BLOCK = 1024, CHUNK = 128, MOST = 16,       /* machines */
       KEY_BYTES = 4 * KV_HEADS * 2 * D, HOP_BYTES = 4 * (D + 4) * HEADS, OUT_BYTES = 4 * D * HEADS };

/* of a machine: given */
static const double cores = 32, memory = 200e9;                                  /* bytes a second */
static const struct { double bytes, latency; } network[3] =                      /* a second; seconds */
    { { 1e9 / 8, 50e-6 }, { 10e9 / 8, 20e-6 }, { 100e9 / 8, 5e-6 } };

/* of one core: measured */
static double flops = 130e9;             /* a second, many rows over keys */
static double key_seconds = 0.95e-6;       /* one row over one key, all heads of a layer */
static double fold_seconds = 0.77e-6;      /* the states of one chunk folded, all heads of a layer */

static double larger(double a, double b) { return a > b ? a : b; }

/* ---- the model ---- */
static double compute_token(double keys, int machines)       /* seconds a layer: parallel parts, serial folds */
{
    const double own = keys / machines;
    return larger(own * key_seconds / cores, own * KEY_BYTES / memory) + keys / CHUNK * fold_seconds / cores;
}

static double send_token(int machines, int net)              /* the carry, hop by hop, and the output to all others */
{
    const double hop = network[net].latency + HOP_BYTES / network[net].bytes;
    return machines == 1 ? 0 : (machines - 1) * (hop + OUT_BYTES / network[net].bytes) + network[net].latency;
}

/* Seconds a layer, by the clocks of all ranks. As in context_parallel.c, a rank begins a block when the previous one
   is done and this one has arrived; then it sends the block on and has room for the next. *computing: the part of the
   time spent computing. */
static double prefill(double keys, int machines, int net, double *computing)
{
    const double come = network[net].latency + (double)BLOCK * KEY_BYTES / network[net].bytes;
    double began[MOST] = { 0 }, done[MOST] = { 0 }, came[MOST] = { 0 }, all = 0;
    *computing = 0;
    for (double first = 0; first < keys; first += BLOCK) {
        const double pairs = (keys - first - BLOCK / 2.0) * BLOCK;     /* rows x keys that they see */
        const double compute = pairs * HEADS * 4 * D / (flops * cores * machines);
        const int owner = (int)(first / keys * machines);
        *computing += compute;
        for (int i = 0; i < machines; i++) {
            const int r = (owner + i) % machines, previous = (r + machines - 1) % machines;
            double begin = done[r];
            if (i > 0) {
                came[r] = larger(came[r], larger(began[previous], began[r])) + come;
                begin = larger(begin, came[r]);
            }
            began[r] = begin;
            done[r] = begin + compute;
            all = larger(all, done[r]);
        }
    }
    return all;
}

static void show(int keys)
{
    for (int machines = 1; machines <= MOST; machines *= 2) {
        printf("%7d %6d ", keys, machines);
        for (int net = 0; net < 3; net++) {
            const double send = send_token(machines, net), all = compute_token(keys, machines) + send;
            printf(" %8.1f %2.0f %%", 1e3 * LAYERS * all, 100 * send / all);
        }
        printf(" ");
        for (int net = 0; net < 3; net++) {
            double computing, all = prefill(keys, machines, net, &computing);
            printf(" %8.0f %2.0f %%", LAYERS * all, 100 * (1 - computing / all));
        }
        puts("");
    }
}

/* ---- what one core does ---- */
static void ok(attn_status s) { if (s) exit(1); }            /* ATTN_DEBUG prints the reason */

static float *numbers(size_t n)
{
    float *x = malloc(n * sizeof *x);
    unsigned seed = 1;
    if (!x) { fputs("no memory\n", stderr); exit(1); }
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
    return x;
}

static double seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

static void measure(void)
{
    enum { ROWS = 512, SOME = 2048, MANY = 16384, PARTS = MANY / CHUNK };        /* MANY: 128 MB of keys */
    const size_t q_row = HEADS * D, k_row = KV_HEADS * D, state = HEADS * (D + 4);
    float *q = numbers(ROWS * q_row), *k = numbers(MANY * k_row), *v = numbers(MANY * k_row);
    float *carry = numbers(ROWS * state), *part = numbers(PARTS * state);
    double best[3] = { 1e9, 1e9, 1e9 };

    for (int turn = 0; turn < 5; turn++) {
        attn_args a = attn_args_for(1, ROWS, SOME, HEADS, D);
        double time[4];
        a.kv_heads = KV_HEADS;
        a.q = q;  a.k = k;  a.v = v;
        a.carry_out = carry;
        time[0] = seconds();
        ok(attn_sdpa(&a));
        a.n_q = 1;  a.n_k = MANY;  a.carry_out = part;  a.parts = PARTS;
        time[1] = seconds();
        ok(attn_sdpa(&a));
        a.parts = 0;  a.carry_out = carry;
        time[2] = seconds();
        for (int again = 0; again < 10; again++) ok(attn_fold(&a, part, PARTS));
        time[3] = seconds();
        for (int i = 0; i < 3; i++) if (time[i + 1] - time[i] < best[i]) best[i] = time[i + 1] - time[i];
    }
    flops = (double)ROWS * SOME * HEADS * 4 * D / best[0];
    key_seconds = best[1] / MANY;
    fold_seconds = best[2] / 10 / PARTS;
    free(q);  free(k);  free(v);  free(carry);  free(part);
}

int main(int argc, char **argv)
{
    static const char usage[] = "usage: model [--measure]    speeds of this machine instead of those written here\n";
    if (argc > 1 && (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help"))) return fputs(usage, stdout) < 0;
    if (argc > 2 || (argc > 1 && strcmp(argv[1], "--measure"))) return fputs(usage, stderr), 2;
    if (argc > 1) measure();
    printf("one core: %.0f GFLOP/s; a key %.2f us; the fold of a chunk %.2f us\n",
           flops / 1e9, 1e6 * key_seconds, 1e6 * fold_seconds);
    printf("bytes a layer: %d a hop, whatever the keys; %d a key that travels\n", HOP_BYTES, KEY_BYTES);
    printf("%15s%-39s  %s\n", "", "    a token, ms; network's share of it", "  the prompt, s; waiting's share of it");
    printf("   keys machines");
    for (int i = 0; i < 2; i++) printf("   1 Gbit/s    10 Gbit/s   100 Gbit/s%s", i ? "\n" : "    ");
    show(128 * 1024);
    show(1024 * 1024);
    return 0;
}
