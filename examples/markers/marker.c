// A program without the SDK whose system calls a kernel recorder gives to its request: cc marker.c && ./a.out
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    syscall(SYS_getpid, 0x5354524f42450001, 0xc0ffee, 0, 0, 0, 0); // request c0ffee starts on this thread
    write(1, "hello\n", 6);                                        // its work
    syscall(SYS_getpid, 0x5354524f42450002, 0xc0ffee, 0, 0, 0, 0); // it ends, and the thread works for nobody
}
