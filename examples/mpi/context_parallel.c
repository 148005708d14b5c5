/* mpi/context_parallel.c: how can several machines share one sequence without changing a bit of the result?

   Run:  mpicc -O2 -I. examples/mpi/context_parallel.c && mpirun -n 4 ./a.out
         -n 1, 2, 3 print the same hashes. --keys N: longer prompts. `make mpi` runs all of this (Open MPI or MPICH).

   Where people go wrong: every rank finishes its own keys, and the results are merged by log-sum-exp in the order in
   which they arrive. Then the bits depend on the number of ranks. Here keys are cut at multiples of 128 and folded in
   order, so the bits are those of one call.

   Prefill: rows are distributed in stripes, so that causal work is balanced. Blocks of keys circulate in key order; a
   rank computes with one block while it sends it on and receives the next. Decode: every rank computes the states of
   its chunks of 128 keys at once; then one carry passes from rank to rank, and each rank folds its chunks into it.
   The carry has 4 (v_head_dim + 4) heads bytes a row, 1664 here, however many keys there are.

   Output:
       4 ranks; prompts of 2000 and 1500 tokens, then 8 tokens each
       prefill: blocks of 256 keys, 458752 bytes each
         rank  keys    bytes sent    by formula   seconds   waiting
            0   512       2752512       2752512    0.1397    42.8 %
            1   512       2752512       2752512    0.1402    33.0 %
            2   512       2752512       2752512    0.1255    35.2 %
            3   512       2752512       2752512    0.1236    36.3 %
       decode: 2 rows a token, 1664 bytes a row and hop
         rank  keys    bytes sent    by formula   seconds   waiting
            0   512         26624         26624    0.0019    87.2 %
            1   512         26624         26624    0.0018    74.9 %
            2   512         26624         26624    0.0021    73.2 %
            3   512         73728         73728    0.0019    80.6 %
       prefill 57d7d103ffb573f5: the bits of one call
       decode  44b442f9596ca5ef: the bits of one call

   Rank 3 finishes, and sends 4 v_head_dim heads bytes a row to each of the others: the next token depends on them.

   Two cores prove bits and bytes, not speed. What these bytes mean for 32 layers of 32 heads on 8, of 128 floats each,
   by examples/mpi/model.c:

   Model:
       ...
                          a token, ms; network's share of it     the prompt, s; waiting's share of it
          keys machines   1 Gbit/s    10 Gbit/s   100 Gbit/s       1 Gbit/s    10 Gbit/s   100 Gbit/s
        131072      1     172.6  0 %    172.6  0 %    172.6  0 %      1083  0 %     1083  0 %     1083  0 %
       ...
        131072      4      75.7 42 %     48.9 10 %     44.6  2 %       351 23 %      272  1 %      271  0 %
       ...
        131072     16     164.9 93 %     34.5 67 %     15.4 25 %       337 80 %       77 12 %       68  1 %
       1048576      1    1380.7  0 %   1380.7  0 %   1380.7  0 %     69286  0 %    69286  0 %    69286  0 %
       ...
       1048576      4     381.9  8 %    355.0  1 %    350.8  0 %     17402  0 %    17323  0 %    17322  0 %
       ...
       1048576     16     245.6 62 %    115.2 20 %     96.0  4 %      4672  7 %     4339  0 %     4331  0 %
*/
#define ATTN_DEBUG
#define ATTN_IMPLEMENTATION
#include "attn.h"
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, HEADS = 8, KV_HEADS = 2, D = 64, DV = 48, WINDOW = 1200, TOKENS = 8,
       STRIPE = 64,                                          /* rows that are distributed at a time */
       BLOCK = 256,                                          /* keys that travel at a time: n * 128 */
       Q_ROW = BATCH * HEADS * D, OUT_ROW = BATCH * HEADS * DV,       /* floats: one row of all entries and heads, */
       KEY = BATCH * KV_HEADS * (D + DV),                             /* one key with its value, */
       STATE = HEADS * (DV + 4) };                                    /* the states of one row of one entry */
typedef unsigned long long bits64;

static int rank, ranks, blocks;
static int length[BATCH] = { 2000, 0 };                      /* tokens of each entry; the prompt to begin with */
static int die_rank = -1, wrong_rank = -1, wrong_by;         /* --die, --short, --long: errors for tests */
static double bytes_sent, waited;

static void give_up(const char *why)
{
    fprintf(stderr, "rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}
static void ok(attn_status s) { if (s) give_up("attn.h refused a call"); }         /* ATTN_DEBUG prints the reason */

static float *floats(size_t n)                               /* NaN: unwritten values must not be visible */
{
    float *x = malloc((n + 1) * sizeof *x);                  /* + 1: --long sends one float more */
    if (!x) give_up("no memory");
    for (size_t i = 0; i <= n; i++) x[i] = NAN;
    return x;
}

static void fill(float *x, int n, unsigned seed)             /* represents a model's projections */
{
    for (int i = 0; i < n; i++) {
        seed = (seed ^ seed >> 15) * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 8) / 8388608.0f - 1.0f;
    }
}

static bits64 hash(bits64 h, const float *x, size_t n)       /* FNV-1a of the bits */
{
    for (size_t i = 0; i < n; i++) {
        unsigned bits;
        memcpy(&bits, x + i, sizeof bits);
        h = (h ^ bits) * 1099511628211u;
    }
    return h;
}

static int at_most(int x, int most) { return x < 0 ? 0 : x < most ? x : most; }
static int first_block(int r) { return (int)((long long)blocks * r / ranks); }
static int keys_of(int r) { return (first_block(r + 1) - first_block(r)) * BLOCK; }
static int owner(int block)
{
    int r = 0;
    while (first_block(r + 1) <= block) r++;
    return r;
}

/* ---- messages: counted, waited for, measured ---- */
static MPI_Request send_to(int to, const float *x, int n)
{
    MPI_Request request;
    MPI_Isend(x, n + (rank == wrong_rank ? wrong_by : 0), MPI_FLOAT, to, 0, MPI_COMM_WORLD, &request);
    bytes_sent += 4.0 * n;
    return request;
}
static MPI_Request receive_from(int from, float *x, int n)
{
    MPI_Request request;
    MPI_Irecv(x, n, MPI_FLOAT, from, 0, MPI_COMM_WORLD, &request);
    return request;
}

/* n: expected number of floats, or -1 after a send. MPI rejects a message that is too long, but not one that is too
   short. */
static void wait_for(MPI_Request *request, int n)
{
    MPI_Status status;
    int came;
    double begin = MPI_Wtime();
    if (*request == MPI_REQUEST_NULL) return;
    MPI_Wait(request, &status);
    waited += MPI_Wtime() - begin;
    if (n < 0) return;
    MPI_Get_count(&status, MPI_FLOAT, &came);
    if (came != n) give_up("a message is too short");
}

/* Rows row .. row + n_q - 1 of all entries, over the keys first .. first + n - 1 of the sequence. Positions count from
   the first key of a call. Sets there[0] and there[1] to the number of these rows and keys that exist in each entry. */
static attn_args rows_over(const float *q, int row, int n_q, const float *keys, int first, int n, int (*there)[BATCH])
{
    attn_args a = attn_args_for(BATCH, n_q, n, HEADS, D);
    const ptrdiff_t width[4] = { D, DV, D + DV, D + DV };
    ptrdiff_t *stride[4];
    stride[0] = a.q_stride;  stride[1] = a.out_stride;  stride[2] = a.k_stride;  stride[3] = a.v_stride;
    for (int i = 0; i < 4; i++) {                            /* all are [row][entry][head]: a part is one message */
        stride[i][2] = width[i];
        stride[i][0] = (i < 2 ? HEADS : KV_HEADS) * width[i];
        stride[i][1] = BATCH * stride[i][0];
    }
    for (int b = 0; b < BATCH; b++) {
        there[0][b] = at_most(length[b] - row, n_q);
        there[1][b] = at_most(length[b] - first, n);
    }
    a.kv_heads = KV_HEADS;  a.v_head_dim = DV;
    a.q = q;  a.k = keys;  a.v = keys + D;
    a.q_lengths = there[0];  a.k_lengths = there[1];
    a.q_pos = row - first;
    a.causal = ATTN_CAUSAL_TOP_LEFT;  a.window_left = WINDOW;
    return a;
}

/* ---- prefill: rows stay, keys travel ----
   A rank that waits for a block waits for its left neighbour to begin that block, and one that waits for a free
   buffer waits for its right neighbour to begin an earlier block: so the rank with the earliest block always
   continues. */
static bits64 prefill(const float *own)
{
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks, block_floats = BLOCK * KEY;
    const int stripes = (length[0] + STRIPE - 1) / STRIPE;
    float *room[2] = { floats(BLOCK * KEY), floats(BLOCK * KEY) }, *out = floats(STRIPE * OUT_ROW);
    float *q = floats((size_t)(stripes / ranks + 1) * STRIPE * Q_ROW);
    float *state = floats((size_t)(stripes / ranks + 1) * STRIPE * BATCH * STATE);
    MPI_Request coming = MPI_REQUEST_NULL, going = MPI_REQUEST_NULL;
    bits64 h = 0;
    int there[2][BATCH], any;

    for (int s = rank, i = 0; s < stripes; s += ranks, i++)
        for (int row = 0; row < STRIPE; row++)
            fill(q + (i * STRIPE + row) * Q_ROW, Q_ROW, 2u * (unsigned)(s * STRIPE + row));
    if (owner(0) != rank) coming = receive_from(previous, room[0], block_floats);
    for (int block = 0; block < blocks; block++) {
        const float *keys = room[block % 2];
        if (owner(block) == rank) keys = own + (block - first_block(rank)) * block_floats;
        wait_for(&coming, block_floats);
        if (rank == die_rank && block == blocks / 2) abort();
        wait_for(&going, -1);                                /* the block before has left: its room is free */
        if (owner(block) != next) going = send_to(next, keys, block_floats);
        if (block + 1 < blocks && owner(block + 1) != rank)
            coming = receive_from(previous, room[(block + 1) % 2], block_floats);
        for (int s = rank, i = 0; s < stripes; s += ranks, i++) {
            if ((s + 1) * STRIPE <= block * BLOCK) continue; /* every key is after these rows */
            attn_args a = rows_over(q + i * STRIPE * Q_ROW, s * STRIPE, STRIPE, keys, block * BLOCK, BLOCK, there);
            a.carry_out = state + i * STRIPE * BATCH * STATE;
            if (block > 0) a.carry_in = a.carry_out;
            ok(attn_sdpa(&a));
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &any, MPI_STATUS_IGNORE);   /* MPI makes progress */
        }
    }
    wait_for(&going, -1);
    for (int s = rank, i = 0; s < stripes; s += ranks, i++) {
        attn_args a = rows_over(q, s * STRIPE, STRIPE, own, 0, 0, there);
        a.carry_in = state + i * STRIPE * BATCH * STATE;
        a.out = out;
        ok(attn_sdpa(&a));                                   /* no keys: finishes */
        h += hash((bits64)s, out, STRIPE * OUT_ROW);         /* a sum, because stripes come in any order */
    }
    free(room[0]);  free(room[1]);  free(out);  free(q);  free(state);
    return h;
}

/* ---- decode: keys stay, states travel ---- */

/* The next token of all entries: its query, and its keys for the rank that holds the keys first .. first + n - 1. */
static void next_token(bits64 h, float *q, float *keys, int first, int n)
{
    float key[KEY];
    fill(q, Q_ROW, (unsigned)h);
    fill(key, KEY, (unsigned)(h >> 32));
    for (int b = 0; b < BATCH; b++) {
        const int at = length[b]++ - first, width = KEY / BATCH;
        if (at >= 0 && at < n) memcpy(keys + at * KEY + b * width, key + b * width, sizeof key / BATCH);
    }
}

/* One row per entry, the newest. */
static attn_args newest_rows(const float *q, const float *keys, int first, int n, int (*there)[BATCH])
{
    attn_args a = rows_over(q, 0, 1, keys, first, n, there);
    for (int b = 0; b < BATCH; b++) there[0][b] = length[b] - 1 - first;
    a.q_lengths = NULL;  a.q_pos = 0;  a.q_pos_each = there[0];
    return a;
}

static bits64 decode(float *own, bits64 h)
{
    const int first = first_block(rank) * BLOCK, n = keys_of(rank), parts = n / 128, last = ranks - 1;
    float *part = floats((size_t)parts * BATCH * STATE), *carry = floats(BATCH * STATE), *out = floats(OUT_ROW);
    float q[Q_ROW];
    int there[2][BATCH];

    for (int t = 0; t < TOKENS; t++) {
        MPI_Request request = MPI_REQUEST_NULL;
        next_token(h, q, own, first, n);
        attn_args a = newest_rows(q, own, first, n, there);
        if (rank > 0) request = receive_from(rank - 1, carry, BATCH * STATE);
        a.carry_out = part;
        a.parts = parts;
        ok(attn_sdpa(&a));                                   /* all ranks at once */
        wait_for(&request, BATCH * STATE);
        a.parts = 0;
        a.carry_in = rank > 0 ? carry : NULL;
        a.carry_out = carry;
        ok(attn_fold(&a, part, parts));                      /* one after the other */
        if (rank < last) {
            request = send_to(rank + 1, carry, BATCH * STATE);
            wait_for(&request, -1);
            request = receive_from(last, out, OUT_ROW);
            wait_for(&request, OUT_ROW);
        } else {
            a.carry_in = carry;
            a.carry_out = NULL;
            a.out = out;
            a.n_k = 0;
            a.k_lengths = NULL;
            ok(attn_sdpa(&a));                               /* no keys: finishes */
            for (int r = 0; r < last; r++) {                 /* MPI_Bcast uses a tree, and does not report its bytes */
                request = send_to(r, out, OUT_ROW);
                wait_for(&request, -1);
            }
        }
        h = hash(h, out, OUT_ROW);                           /* a token that depends on every bit so far */
    }
    free(part);  free(carry);  free(out);
    return h;
}

/* The same by calls without parts: h[0] of the prefill, h[1] of the decode. */
static void one_call(float *keys, int rows, bits64 *h)
{
    float *q = floats((size_t)rows * Q_ROW), *out = floats((size_t)rows * OUT_ROW);
    int there[2][BATCH];

    for (int row = 0; row < rows; row++) fill(q + row * Q_ROW, Q_ROW, 2u * (unsigned)row);
    attn_args a = rows_over(q, 0, rows, keys, 0, blocks * BLOCK, there);
    a.out = out;
    ok(attn_sdpa(&a));
    h[0] = 0;
    for (int s = 0; s < rows / STRIPE; s++) h[0] += hash((bits64)s, out + s * STRIPE * OUT_ROW, STRIPE * OUT_ROW);
    h[1] = h[0];
    for (int t = 0; t < TOKENS; t++) {
        next_token(h[1], q, keys, 0, blocks * BLOCK);
        a = newest_rows(q, keys, 0, blocks * BLOCK, there);
        a.out = out;
        ok(attn_sdpa(&a));
        h[1] = hash(h[1], out, OUT_ROW);
    }
    free(q);  free(out);
}

static float *prompt_keys(int first, int n)
{
    float *keys = floats((size_t)n * KEY);
    for (int i = 0; i < n; i++)
        for (int b = 0; b < BATCH; b++)
            if (first + i < length[b])
                fill(keys + i * KEY + b * (KEY / BATCH), KEY / BATCH, 2u * (unsigned)(first + i) + 1u);
    return keys;
}

/* Compares bytes with the formula; prints seconds since `begin` and the share of them spent waiting. */
static void report(double formula, double begin)
{
    double mine[4] = { bytes_sent, formula, MPI_Wtime() - begin, waited }, *all = NULL;
    if (bytes_sent != formula) give_up("bytes differ from the formula");
    if (rank == 0 && !(all = malloc((size_t)ranks * sizeof mine))) give_up("no memory");
    MPI_Gather(mine, 4, MPI_DOUBLE, all, 4, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (rank == 0) puts("  rank  keys    bytes sent    by formula   seconds   waiting");
    for (int r = 0; rank == 0 && all && r < ranks; r++) {
        const double *x = all + 4 * r;
        printf("%6d %5d %13.0f %13.0f %9.4f %7.1f %%\n", r, keys_of(r), x[0], x[1], x[2], 100 * x[3] / x[2]);
    }
    free(all);
    bytes_sent = waited = 0;
}

int main(int argc, char **argv)
{
    static const char options[] = "options: --keys N, --die RANK, --short RANK, --long RANK";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i += 2) {
        const int n = i + 1 < argc ? atoi(argv[i + 1]) : -1;
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) {
            if (rank == 0) printf("usage: context_parallel [%s]\n", options);
            return MPI_Finalize();
        }
        if (!strcmp(argv[i], "--keys")) length[0] = n;
        else if (!strcmp(argv[i], "--die")) die_rank = n;
        else if (!strcmp(argv[i], "--short")) { wrong_rank = n;  wrong_by = -1; }
        else if (!strcmp(argv[i], "--long")) { wrong_rank = n;  wrong_by = 1; }
        else give_up(options);
    }
    const int prompt[BATCH] = { length[0], length[0] / 4 * 3 };
    memcpy(length, prompt, sizeof length);
    blocks = (prompt[0] + TOKENS + BLOCK - 1) / BLOCK;
    if (prompt[0] < 1 || prompt[0] > 1 << 20) give_up("--keys: 1 to 1048576");
    if (blocks < ranks) give_up("--keys: too few to give each rank a block");

    const int last = ranks - 1, next_keys = keys_of((rank + 1) % ranks);
    const double passed_on = 4.0 * KEY * (blocks * BLOCK - next_keys);
    const double carried = 4.0 * (DV + 4) * HEADS * BATCH * TOKENS;
    const double sent_back = 4.0 * DV * HEADS * BATCH * TOKENS * last;
    float *own = prompt_keys(first_block(rank) * BLOCK, keys_of(rank));

    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    bits64 stripes = prefill(own), prefilled, decoded;
    if (rank == 0)
        printf("%d rank%s; prompts of %d and %d tokens, then %d tokens each\n"
               "prefill: blocks of %d keys, %d bytes each\n",
               ranks, ranks > 1 ? "s" : "", prompt[0], prompt[1], TOKENS, BLOCK, 4 * BLOCK * KEY);
    report(passed_on, begin);
    MPI_Allreduce(&stripes, &prefilled, 1, MPI_UNSIGNED_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);

    begin = MPI_Wtime();
    decoded = decode(own, prefilled);
    if (rank == 0) printf("decode: %d rows a token, %d bytes a row and hop\n", BATCH, 4 * STATE);
    report(rank < last ? carried : sent_back, begin);
    free(own);

    if (rank == 0) {
        bits64 h[2];
        memcpy(length, prompt, sizeof length);
        float *all = prompt_keys(0, blocks * BLOCK);
        one_call(all, (prompt[0] + STRIPE - 1) / STRIPE * STRIPE, h);
        free(all);
        printf("prefill %016llx: %s\n", prefilled, h[0] == prefilled ? "the bits of one call" : "DIFFERENT");
        printf("decode  %016llx: %s\n", decoded, h[1] == decoded ? "the bits of one call" : "DIFFERENT");
        if (h[0] != prefilled || h[1] != decoded) give_up("other bits than those of one call");
    }
    MPI_Finalize();
    return 0;
}
