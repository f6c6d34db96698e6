// The commands of the program: each is one file with one of these, listed in command.c.
#ifndef CMD_COMMAND_H
#define CMD_COMMAND_H

int command_main(int argc, char **argv);

#endif
