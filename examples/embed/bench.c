/* bench.c: embed.c's model for bench.py, which runs it and ONNX Runtime alternately.

   Build:  cc -O2 -I. -pthread examples/embed/bench.c -o bench
   Run:    ./bench folder - -j 1          embed's options; of these -H -p -16 -32 -P -j count

   Commands on standard input, answers on standard output:
       batch 2      the following two lines of token numbers become the batch
       vectors      prints its vectors, one per line, in hexadecimal
       run 10       encodes it ten times and prints the time and the CPU time, in seconds */
#ifndef ATTN_THREADS
#define ATTN_THREADS
#endif
#define main embed_main
#include "embed.c"
#undef main

enum { MOST = 256 };                                             /* lines of a batch */

static void batch_read(line *lines, line **order, int n, const model *m)
{
    static char s[1 << 16];
    for (int b = 0; b < n; b++) {
        line *l = &lines[b];
        if (!l->ids) {
            l->ids = (int *)room((size_t)m->positions, sizeof *l->ids);
            l->vector = (float *)room((size_t)m->width, sizeof *l->vector);
        }
        char *at = fgets(s, sizeof s, stdin), *end;
        for (l->n = 0; at && l->n < m->positions; at = end) {
            const long id = strtol(at, &end, 10);
            if (end == at) break;
            if (id < 0 || (size_t)id >= m->words->shape[0]) refuse("batch", "there is no such token");
            l->ids[l->n++] = (int)id;
        }
        if (l->n < 1) refuse("batch", "a line without tokens");
        l->number = b;
        order[b] = l;
    }
    qsort(order, (size_t)n, sizeof *order, by_length);
}

int main(int argc, char **argv)
{
    static line lines[MOST], *order[MOST];
    char command[64];
    int n = 0, count;
    wish w;
    model m;
    file weights;
    memset(&w, 0, sizeof w);
    w.nearest = w.batch = w.threads = 1;
    if (!wish_parse(&w, argc, argv)) refuse("usage", "bench folder - [options of embed]");
    if (w.help) return puts("usage: bench folder - [options of embed]    batches come on standard input") < 0;
    model_open(&m, &weights, &w);
    attn_pool *pool = attn_pool_create(w.threads);
    if (!pool) refuse("-j", "the system does not give so many threads");
    const attn_exec threads = attn_pool_exec(pool);
    model_room(&m, MOST, m.positions, w.threads > 1 ? &threads : NULL);
    while (fgets(command, sizeof command, stdin)) {
        const int first = !strcmp(w.pooling, "first");
        if (sscanf(command, "batch %d", &count) == 1 && count > 0 && count <= MOST) {
            batch_read(lines, order, n = count, &m);
        } else if (sscanf(command, "run %d", &count) == 1) {
            const double begin = seconds(), busy = (double)clock() / CLOCKS_PER_SEC;
            while (count-- > 0) encode(&m, order, n, w.padded, first);
            printf("%.9f %.9f\n", seconds() - begin, (double)clock() / CLOCKS_PER_SEC - busy);
        } else if (!strcmp(command, "vectors\n")) {
            encode(&m, order, n, w.padded, first);
            for (int b = 0; b < n; b++) {
                for (int i = 0; i < m.width; i++) printf("%a ", (double)lines[b].vector[i]);
                putchar('\n');
            }
        } else refuse(command, "there is no such command");
        fflush(stdout);
    }
    attn_pool_destroy(pool);
    model_free(&m);
    for (int b = 0; b < MOST; b++) { free(lines[b].ids);  free(lines[b].vector); }
    file_close(&weights);
    return 0;
}
