// argv to command.
#include "cmd/command.h"
#include <malloc.h>
#include <signal.h>

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    // Results of a few hundred kilobytes come and go all the time: from the heap, not by mmap each.
    mallopt(M_MMAP_THRESHOLD, 2 << 20);
    mallopt(M_TRIM_THRESHOLD, 8 << 20);
    return command_main(argc, argv);
}
