/* listen.c: the speech recogniser of examples/listen as functions for the page's worker (worker.js). It is linked with
   page.c, which has the implementation of attn.h; each worker has its instance and memory.

   The worker allocates room for a file, copies the bytes there, opens the model and the sound, and calls ls_next for
   each window. */
#define ATTN__IMPLEMENTED                 /* in page.c */
#define LISTEN_NO_MAIN
#include "../listen/listen.c"

#define EXPORT(name) __attribute__((export_name(#name)))

static listener ls;
static unsigned char *ls_files[2];        /* bytes of the model and of the sound, read in place */
static size_t ls_sizes[2];
static const char *ls_wrong = "";
static char ls_name[8192];                /* a text for JavaScript, terminated */

/* Progress inside a window: JavaScript's function. done: seconds * 100 of the sound for which a text is found. */
__attribute__((import_module("page"), import_name("heard"))) void page_heard(int done);

static const char *ls_spell(const int *ids, int n)
{
    ls_name[append_text(&ls.w, ids, n, ls_name, (int)sizeof ls_name - 1)] = 0;
    return ls_name;
}

/* Called after each token: ls_draft returns the text of the window so far. */
static void ls_watch(const beam *b)
{
    int last = b->n - 1;
    while (last >= 0 && b->ids[last] < ls.w.stamps) last--;
    ls_spell(b->ids, b->n);
    page_heard((int)ls.seek + (last < 0 ? 0 : 2 * (b->ids[last] - ls.w.stamps)));
}

/* Ends the sound, keeps the model. */
static void ls_end_sound(void)
{
    static whisper kept;
    kept = ls.w;
    memset(&ls.w, 0, sizeof ls.w);
    listener_close(&ls);
    ls.w = kept;
}

/* Returns room for the bytes of a model (0) or a sound (1), which replaces the one before; NULL: out of memory. */
EXPORT(ls_room) unsigned char *ls_room(int sound, unsigned size)
{
    ls_end_sound();
    if (!sound) whisper_close(&ls.w);
    free(ls_files[sound]);
    ls_sizes[sound] = size;
    return ls_files[sound] = malloc(size ? size : 1);
}

/* Both return 0, or -1 if the file was rejected: ls_why has the reason. */
EXPORT(ls_model) int ls_model(void)
{
    const size_t format = 4 + 4 * GGML_FORMAT;                 /* halves stay halves: the same bits, less memory */
    const int half = ls_sizes[0] >= format + 4 && wav_number(ls_files[0] + format, 4) % 1000 == GGML_F16;
    ls_wrong = whisper_open(&ls.w, ls_files[0], ls_sizes[0], 1, half ? ATTN_F16 : ATTN_F32, NULL);
    return ls_wrong ? -1 : 0;
}
EXPORT(ls_sound) int ls_sound(void)
{
    ls_wrong = wav_open(&ls.sound, ls_files[1], ls_sizes[1]);
    if (!ls_wrong && ls.sound.samples < MEL_POINTS) ls_wrong = "it is shorter than a frame of 25 ms";
    if (ls_wrong) return -1;
    ls.want_words = 1;
    ls.what.hash = 1;
    ls.what.watch = ls_watch;
    ls_wrong = "there is not enough memory for it";
    return listener_open(&ls, -1, 0, 1) ? 0 : -1;
}
EXPORT(ls_why) const char *ls_get_why(void) { return ls_wrong; }

/* Recognises the next window. Returns 1, 0 at the end of the sound, -1 if memory is missing: ls_why has the reason. */
EXPORT(ls_next) int ls_next(void) { return listen_on(&ls); }
EXPORT(ls_draft) const char *ls_get_draft(void) { return ls_name; }

/* ---- words, segments and pictures: times in units of 10 ms ------------------------------------------------------- */

EXPORT(ls_total) int ls_total(void) { return (int)ls.total; }
EXPORT(ls_done) int ls_done(void) { return (int)(ls.seek < ls.total ? ls.seek : ls.total); }
EXPORT(ls_spaced) int ls_spaced(void) { return ls.spaced; }
EXPORT(ls_hash) unsigned long long ls_hash(void) { return ls.hash; }
EXPORT(ls_hashed) int ls_hashed(void) { return (int)ls.hashed; }

/* Words (0) or segments (1) */
static const cues *ls_cues(int kind) { return kind ? &ls.segments : &ls.words; }
EXPORT(ls_count) int ls_count(int kind) { return ls_cues(kind)->n; }
EXPORT(ls_begin) int ls_begin(int kind, int i) { return (int)ls_cues(kind)->list[i].begin; }
EXPORT(ls_end) int ls_end(int kind, int i) { return (int)ls_cues(kind)->list[i].end; }
EXPORT(ls_text) const char *ls_text(int kind, int i) { return ls_cues(kind)->text + ls_cues(kind)->list[i].text; }

/* Of the last window: its tokens with text, where each begins (in columns of 20 ms), the staircase [tokens][columns],
   and the spectrogram [2 * columns][bands] */
EXPORT(ls_tokens) int ls_tokens(void) { return ls.n_ids; }
EXPORT(ls_token) const char *ls_token(int i) { return ls_spell(ls.ids + i, 1); }
EXPORT(ls_starts) const int *ls_starts(void) { return ls.starts; }
EXPORT(ls_columns) int ls_columns(void) { return ls.columns; }
EXPORT(ls_stairs) const float *ls_stairs(void) { return ls.staircase; }
EXPORT(ls_bands) int ls_bands(void) { return ls.w.spectrum.bands; }
EXPORT(ls_frames) const float *ls_frames(void) { return ls.frames + ls.w.spectrum.bands; }
