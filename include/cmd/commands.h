// The commands of the program, each a file with a row for the table in commands.c.
#ifndef CMD_COMMANDS_H
#define CMD_COMMANDS_H

int commands_main(int argc, char **argv);

#endif
