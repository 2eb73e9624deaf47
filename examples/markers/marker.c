// Marks its system calls for a kernel recorder, without the SDK: cc marker.c && ./a.out
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    syscall(SYS_getpid, 0x5354524f42450001, 0xc0ffee, 0, 0, 0, 0); // request c0ffee starts on this thread
    write(1, "hello\n", 6);                                        // work of the request
    syscall(SYS_getpid, 0x5354524f42450002, 0xc0ffee, 0, 0, 0, 0); // request c0ffee ends
}
