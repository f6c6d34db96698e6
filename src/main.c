// The entry point: argv to command.
#include "cmd/commands.h"
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

// If a standard descriptor is closed, a later connection could get its number, and output would go there. So each is
// occupied, opened for the wrong direction, so that using it still fails.
static void occupy_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            abort();
}

int main(int argc, char **argv)
{
    occupy_standard_descriptors();
    signal(SIGPIPE, SIG_IGN);
    // Results of a few hundred kilobytes are frequent: allocate them from the heap, not with mmap() each.
    mallopt(M_MMAP_THRESHOLD, 2 << 20);
    // 64 of them in flight must not make the heap shrink and grow again all the time; mem_give_back() returns what stays free.
    mallopt(M_TRIM_THRESHOLD, 32 << 20);
    return commands_main(argc, argv);
}
