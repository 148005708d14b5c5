/* names.c: attn_status_str and attn_backend_name of every int. */
#include "prove.h"

int main(void)
{
    attn_status_str((attn_status)any_int());
    attn_backend_name((attn_backend)any_int());
    return 0;
}
