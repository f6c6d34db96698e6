// argv to command.
#include "cmd/command.h"
#include <signal.h>

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    return command_main(argc, argv);
}
