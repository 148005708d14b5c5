#include <stddef.h>
int printf(const char *format, ...);
int putchar(int c);
typedef struct crt_file FILE;
extern FILE *stdout;
int fputs(const char *s, FILE *f);
int fputc(int c, FILE *f);
size_t fwrite(const void *p, size_t size, size_t n, FILE *f);
