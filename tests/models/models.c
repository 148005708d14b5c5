/* models.c: trained models with published numbers, through the public API.
 *
 *   make models                               MODELS=folder make models: a folder other than ../shared/models
 *   build/models/models folder [word ...]     only tests whose name contains a word
 *
 * The models are read in place. If one is missing, its tests are skipped with a message. The line `bits:` is a hash of
 * the results: models.sh compares it between builds. The last line is `N passed, M failed`. */
#include "models.h"

extern const test_case suite_transliteration[], suite_stories[], suite_minilm[];

uint64_t model_bits;
static const char *folder;

unsigned char *model_file(const char *name, size_t *size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    if (fseek(f, 0, SEEK_END) != 0) model_broken(name, "has no length");
    const long n = ftell(f);
    if (n < 0 || fseek(f, 0, SEEK_SET) != 0) model_broken(name, "has no length");
    *size = (size_t)n;
    unsigned char *bytes = (unsigned char *)malloc(*size + 1);
    if (!bytes || fread(bytes, 1, *size, f) != *size) model_broken(name, "cannot be read");
    fclose(f);
    bytes[*size] = 0;
    return bytes;
}

void model_broken(const char *name, const char *why)
{
    printf("FAIL %s/%s %s\n0 passed, 1 failed\n", folder, name, why);
    exit(1);
}

attn_mha_opts way_opts(const way *w)
{
    attn_mha_opts o;
    memset(&o, 0, sizeof o);
    o.attn.backend = w->backend;
    o.attn.exec = w->exec;
    return o;
}

int way_backends(attn_backend list[8])
{
    attn_backend best;
    attn_backends(&best, 1);
    const int n = test_one_answer_backends(list, 8);
    if (n > 0 && list[0] == best) return n;
    list[0] = best;
    return 1;
}

void model_norm(float *y, const float *x, int rows, int width, const float *gamma, const float *beta)
{
    for (int r = 0; r < rows; r++, x += width, y += width) {
        double mean = 0, squares = 0;
        for (int i = 0; beta && i < width; i++) mean += (double)x[i] / width;
        for (int i = 0; i < width; i++) squares += (x[i] - mean) * (x[i] - mean) / width;
        const double factor = 1 / sqrt(squares + 1e-5);
        for (int i = 0; i < width; i++) y[i] = (float)((x[i] - mean) * factor * gamma[i] + (beta ? beta[i] : 0.0f));
    }
}

int model_best(const float *x, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++) if (x[i] > x[best]) best = i;
    return best;
}

double model_log_p(const float *x, int n, int at)
{
    const double most = x[model_best(x, n)];
    double sum = 0;
    for (int i = 0; i < n; i++) sum += exp(x[i] - most);
    return x[at] - most - log(sum);
}

int main(int argc, char **argv)
{
    static const struct { const char *name, *file; const test_case *tests; } models[] = {
        { "transliteration", "transliteration/model.bin", suite_transliteration },
        { "stories", "stories260K/stories260K.bin", suite_stories },
        { "minilm", "minilm/model.safetensors", suite_minilm },
    };
    int counts[3] = { 0, 0, 0 };
    if (argc < 2) return fprintf(stderr, "usage: %s folder-of-models [word ...]\n", argv[0]), 2;
    folder = argv[1];
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        size_t size;
        unsigned char *there = model_file(models[m].file, &size);
        free(there);
        if (!there) {
            printf("SKIPPED %s: there is no %s/%s\n", models[m].name, folder, models[m].file);
            counts[TEST_SKIPPED]++;
            continue;
        }
        for (const test_case *t = models[m].tests; t->name; t++) {
            int wanted = argc == 2;
            for (int i = 2; i < argc; i++) wanted |= strstr(models[m].name, argv[i]) || strstr(t->name, argv[i]);
            if (wanted) counts[test_run(models[m].name, t)]++;
        }
    }
    printf("bits: %016llx\n", (unsigned long long)model_bits);
    if (counts[TEST_SKIPPED]) printf("%d skipped\n", counts[TEST_SKIPPED]);
    printf("%d passed, %d failed\n", counts[TEST_PASSED], counts[TEST_FAILED]);
    return counts[TEST_FAILED] != 0;
}
