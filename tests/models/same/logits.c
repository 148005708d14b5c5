/* logits.c: the teller of examples/14_stories.c, bit for bit: 200 tokens drawn at a temperature of 0.9, and a hash of
 * them and of all their logits. models.sh builds it by other compilers and flags and compares.
 *
 *   logits stories260K.bin       prints one hash */
#define main stories_main
#include "../../../examples/14_stories.c"
#undef main

int main(int argc, char **argv)
{
    static teller t;
    unsigned long long seed = 3, hash = 0xCBF29CE484222325ull;
    int token = BEGIN;
    file f;
    (void)stories_main;
    if (argc < 2) return 2;
    file_need(&f, argv[1]);
    const char *why = model_parse(&t.m, f.bytes, f.size);
    if (why) refuse(argv[1], why);
    const formats floats = { ATTN_F32, ATTN_F32, ATTN_F32 };
    teller_init(&t, 200, floats, NULL);
    chance *list = (chance *)room((size_t)t.m.words, sizeof *list);
    for (int n = 0; n < 200; n++) {
        const unsigned char *bytes = (const unsigned char *)(const void *)t.logits;
        step(&t, &token, 1);
        for (size_t i = 0; i < (size_t)t.m.words * sizeof(float); i++) hash = (hash ^ bytes[i]) * 0x100000001B3ull;
        token = pick(t.logits, t.m.words, 0.9f, 0.9, list, &seed);
        hash = (hash ^ (unsigned)token) * 0x100000001B3ull;
    }
    printf("%016llx\n", hash);
    free(list);
    teller_free(&t);
    file_close(&f);
    return 0;
}
