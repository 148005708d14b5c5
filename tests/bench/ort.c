/* ort.c: ONNX Runtime, in a node process of its own (ort.js) that answers line by line. Tensors go through files in
 * memory (/dev/shm where there is one). What a call of an empty model costs there is not counted: ort.js is how this
 * program reaches ONNX Runtime, not how a C program would. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

static struct process {
    pid_t pid;                            /* 0: none, -1: tried in vain */
    FILE *to, *from;
    int users, ids;
    char folder[64], line[256];
    const bench_case *written;            /* whose tensors lie in the folder */
    const char *written_name;
    double empty;                         /* seconds that a call of an empty model takes */
} ort;

typedef struct ort_job {
    const bench_case *c;
    int id;
} ort_job;

/* One line there, one line back; the answer without its newline. */
static const char *ask(const char *line)
{
    if (ort.pid <= 0) return "no process";
    fputs(line, ort.to);
    fputc('\n', ort.to);
    if (fflush(ort.to) || !fgets(ort.line, sizeof ort.line, ort.from)) snprintf(ort.line, sizeof ort.line, "no answer");
    ort.line[strcspn(ort.line, "\n")] = 0;
    return ort.line;
}

static const char *ort_open(const bench_peer *p, const bench_setup *s)
{
    static char why[256];
    const char *shm = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    char script[1024], peers[1024], threads[16];
    int in[2], out[2];
    (void)p;
    if (ort.users++) return ort.pid > 0 ? NULL : why;
    ort.pid = -1;
    snprintf(why, sizeof why, "node cannot be started");
    snprintf(ort.folder, sizeof ort.folder, "%s/attn-bench-XX" "XX" "XX", shm);
    if (!mkdtemp(ort.folder) || pipe(in) || pipe(out)) return why;
    snprintf(script, sizeof script, "%s/ort.js", s->folder);
    snprintf(peers, sizeof peers, "%s/../peers", s->folder);
    snprintf(threads, sizeof threads, "%d", s->threads);
    signal(SIGPIPE, SIG_IGN);
    fflush(stdout);
    ort.pid = fork();
    if (ort.pid == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        close(in[0]), close(in[1]), close(out[0]), close(out[1]);
        execlp("node", "node", script, peers, threads, s->avx2 ? "avx2" : "native", (char *)NULL);
        _exit(write(1, "no node here\n", 13) != 13);
    }
    close(in[0]), close(out[1]);
    ort.to = fdopen(in[1], "w");
    ort.from = fdopen(out[0], "r");
    if (ort.pid < 0 || !ort.to || !ort.from) return why;
    if (!fgets(ort.line, sizeof ort.line, ort.from)) snprintf(ort.line, sizeof ort.line, "no it does not answer");
    if (strncmp(ort.line, "ok", 2)) {
        const int alone = !strncmp(ort.line, "no node", 7);
        snprintf(why, sizeof why, "%.200s", alone ? "there is no node to run it" : ort.line + 3);
        why[strcspn(why, "\n")] = 0;
        waitpid(ort.pid, NULL, 0);
        ort.pid = -1;
        rmdir(ort.folder);
        return why;
    }
    ort.empty = 0;
    for (int i = 0; i < 3; i++)
        if (sscanf(ask(bench_cpu_time ? "time id=-1 calls=1000 cpu=1" : "time id=-1 calls=1000 cpu=0"), "seconds %lf",
                   &ort.empty) == 1)
            ort.empty /= 1000;
    return NULL;
}

static void put(const char *name, const float *x, size_t n)
{
    char path[128];
    FILE *f;
    if (!x) return;
    snprintf(path, sizeof path, "%s/%s.f32", ort.folder, name);
    f = fopen(path, "wb");
    if (!f || fwrite(x, sizeof(float), n, f) != n || fclose(f)) {
        fprintf(stderr, "bench: cannot write %s\n", path);
        exit(1);
    }
}

static void drop(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s.f32", ort.folder, name);
    unlink(path);
}

static void tidy(void)
{
    static const char *const names[] = { "q", "k", "v", "mask", "x", "w_in", "b_in", "w_o", "b_o", "out" };
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) drop(names[i]);
    ort.written = NULL;
}

static void write_case(const bench_case *c)
{
    const attn_args *a = &c->a;
    const size_t d = (size_t)c->d_model, k = (size_t)a->batch * (size_t)a->n_k * (size_t)(a->kv_heads * a->head_dim);
    put("q", a->q, c->out_floats);
    put("k", a->k, k);
    put("v", a->v, k);
    put("mask", a->mask, (size_t)a->mask_shape[0] * (size_t)a->n_q * (size_t)a->n_k);
    put("x", c->x, c->out_floats);
    put("w_in", c->w_in, 3 * d * d);
    put("b_in", c->b_in, 3 * d);
    put("w_o", c->w_o, d * d);
    put("b_o", c->b_o, d);
    ort.written = c;
    ort.written_name = c->name;
}

static void *ort_prepare(const bench_peer *p, const bench_case *c)
{
    const attn_args *a = &c->a;
    char line[512], lengths[128] = "";
    const char *answer;
    ort_job *job;
    if (ort.written != c || ort.written_name != c->name) {
        ask("clear");
        write_case(c);
    }
    for (int b = 0; a->k_lengths && b < a->batch; b++)
        snprintf(lengths + strlen(lengths), sizeof lengths - strlen(lengths), "%s%d",
                 b ? "," : " lengths=", a->k_lengths[b]);
    snprintf(line, sizeof line,
             "load id=%d op=%s folder=%s layer=%d batch=%d heads=%d kv=%d n_q=%d n_k=%d dim=%d causal=%d "
             "left=%d right=%d mask=%d%s",
             ort.ids, (const char *)p->self, ort.folder, c->layer, a->batch, a->heads, a->kv_heads, a->n_q, a->n_k,
             a->head_dim, a->causal != ATTN_CAUSAL_NONE, a->window_left, a->window_right, a->mask ? a->mask_shape[0] : 0,
             lengths);
    answer = ask(line);
    if (strcmp(answer, "ok")) {
        if (!strstr(answer, "no such operator")) fprintf(stderr, "bench: %s on %s: %s\n", p->name, c->name, answer);
        return NULL;
    }
    job = (ort_job *)calloc(1, sizeof *job);
    if (!job) exit(1);
    job->c = c;
    job->id = ort.ids++;
    return job;
}

static double ort_timed(void *arg, int calls)
{
    const ort_job *job = (const ort_job *)arg;
    char line[64];
    double seconds = -1;
    const char *answer;
    snprintf(line, sizeof line, "time id=%d calls=%d cpu=%d", job->id, calls, bench_cpu_time);
    answer = ask(line);
    if (sscanf(answer, "seconds %lf", &seconds) != 1) fprintf(stderr, "bench: ONNX Runtime: %s\n", answer);
    return seconds > 2 * ort.empty * calls ? seconds - ort.empty * calls : seconds / 2;
}

static void ort_run(void *job) { (void)ort_timed(job, 1); }

static void ort_fetch(void *arg)
{
    const ort_job *job = (const ort_job *)arg;
    char line[64], path[128];
    FILE *f;
    snprintf(line, sizeof line, "fetch id=%d", job->id);
    ask(line);
    snprintf(path, sizeof path, "%s/out.f32", ort.folder);
    memset(job->c->a.out, 0, job->c->out_floats * sizeof(float));
    f = fopen(path, "rb");
    if (f) {
        if (fread(job->c->a.out, sizeof(float), job->c->out_floats, f) != job->c->out_floats) job->c->a.out[0] = 1e9f;
        fclose(f);
    }
}

static void ort_release(void *arg)
{
    ort_job *job = (ort_job *)arg;
    char line[64];
    snprintf(line, sizeof line, "free id=%d", job->id);
    ask(line);
    free(job);
    tidy();
}

static void ort_close(const bench_peer *p)
{
    (void)p;
    if (--ort.users) return;
    if (ort.pid > 0) {
        fclose(ort.to);
        fclose(ort.from);
        waitpid(ort.pid, NULL, 0);
    }
    tidy();
    rmdir(ort.folder);
    ort.pid = 0;
}

#define ORT(name, op) { name, ort_open, ort_prepare, ort_run, ort_timed, ort_fetch, ort_release, ort_close, op }
static char mha[] = "mha", attention[] = "attention", gqa[] = "gqa";
const bench_peer peer_ort_mha = ORT("ORT MultiHead", mha);
const bench_peer peer_ort_attention = ORT("ORT Attention", attention);
const bench_peer peer_ort_gqa = ORT("ORT GroupQuery", gqa);
