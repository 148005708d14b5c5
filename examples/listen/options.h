/* options.h: the command line of listen, its errors, and files as bytes in memory. */
#ifndef LISTEN_OPTIONS_H
#define LISTEN_OPTIONS_H
#include "output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#elif defined(_WIN32)
#include <io.h>
#define isatty _isatty
#else
#define isatty(stream) 0
#endif

typedef struct wish {
    const char *model, *sound, *out, *picture, *language;
    int threads, beams, half, eight, at_once, translate, words, hash, no_stamps, help;
} wish;

static void refuse(const char *name, const char *reason)
{
    fprintf(stderr, "listen: %s: %s\n", name, reason);
    exit(1);
}

typedef struct file { unsigned char *bytes; size_t size; } file;

/* Reads a file: mapped if the system can, so that only pages in use take memory. "-": standard input. */
static file file_open(const char *path)
{
    file f = { NULL, 0 };
    const int input = !strcmp(path, "-");
#if defined(__unix__) || defined(__APPLE__)
    struct stat s;
    const int d = input ? -1 : open(path, O_RDONLY);
    if (d >= 0 && fstat(d, &s) == 0 && S_ISREG(s.st_mode) && s.st_size > 0) {
        void *p = mmap(NULL, (size_t)s.st_size, PROT_READ, MAP_PRIVATE, d, 0);
        if (p != MAP_FAILED) f.bytes = (unsigned char *)p;
        if (p != MAP_FAILED) f.size = (size_t)s.st_size;
    }
    if (d >= 0) close(d);
    if (f.bytes) return f;
#endif
    FILE *in = input ? stdin : fopen(path, "rb");
    if (!in) refuse(path, "it cannot be opened");
    for (size_t got = 1, room = 0; got; f.size += got) {
        if (f.size == room) {
            room = room ? 2 * room : 1 << 20;
            f.bytes = (unsigned char *)realloc(f.bytes, room);
            if (!f.bytes) refuse(path, "there is not enough memory for it");
        }
        got = fread(f.bytes + f.size, 1, room - f.size, in);
    }
    if (ferror(in)) refuse(path, "it cannot be read");
    if (!input) fclose(in);
    return f;
}

/* Returns the largest resident memory so far in MB (10^6 bytes), 0 if unknown. */
static inline long memory_used(void)
{
#if defined(__linux__)
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) ? 0 : u.ru_maxrss * 1024 / 1000000;
#else
    return 0;
#endif
}

static int read_number(const char *value, int least, int most, int *to)
{
    char *end;
    const long n = strtol(value, &end, 10);
    *to = (int)n;
    return end != value && !*end && n >= least && n <= most;
}

static int read_flag(wish *w, const char *word)
{
    static const char *const words[] = { "-16", "-8", "-1", "-t", "-w", "-v", "-n" };
    int *const flags[] = { &w->half, &w->eight, &w->at_once, &w->translate, &w->words, &w->hash, &w->no_stamps };
    for (int i = 0; i < 7; i++) {
        if (strcmp(word, words[i]) != 0) continue;
        *flags[i] = 1;
        return 1;
    }
    return 0;
}

static int wish_parse(wish *w, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = argv[i + 1];                       /* NULL after the last one */
        if (!argv[i][0]) return 0;
        if (!strcmp(argv[i], "-h") || !strcmp(argv[i], "--help")) return w->help = 1;
        if (read_flag(w, argv[i])) continue;
        if (argv[i][0] != '-' || !argv[i][1]) {
            if (w->sound) return 0;
            *(w->model ? &w->sound : &w->model) = argv[i];
            continue;
        }
        if (!value || strlen(argv[i]) != 2) return 0;
        i++;
        switch (argv[i - 1][1]) {
        case 'j': if (!read_number(value, 1, 256, &w->threads)) return 0; break;
        case 'b': if (!read_number(value, 1, BEAMS, &w->beams)) return 0; break;
        case 'l': w->language = value; break;
        case 'o': w->out = value; break;
        case 's': w->picture = value; break;
        default: return 0;
        }
    }
    return w->sound && (!w->out || output_kind(w->out));
}

static void usage(FILE *f)
{
    fputs("usage: listen [options] model.bin sound.wav        -: raw samples from standard input, 16 bits, 16 kHz\n"
          "  -w           words: start, end, word\n"
          "  -o file      also to a file: .srt, .vtt or .json\n"
          "  -s file.svg  a picture of the first sentence\n"
          "  -l xx        language of a multilingual model, de for example (default: detected)\n"
          "  -t           translate to English\n"
          "  -b n         beams, 1 to 8 (default 1)\n"
          "  -n           do not ask the model for timestamps\n"
          "  -j n         threads\n"
          "  -16          keep weights in half: less memory, faster, the same bits if the file holds halves\n"
          "  -8           keep weights in 8 bits: a quarter of the memory of floats, a few other words\n"
          "  -1           compute the hash from the finished text at once\n"
          "  -v           hash of the logits that led to the text, times, memory used\n", f);
}
#endif
