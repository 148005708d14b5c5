typedef int jmp_buf[64];
