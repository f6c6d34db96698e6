// The content of a result, for people.
#ifndef CMD_CONTENT_H
#define CMD_CONTENT_H

#include "base/err.h"
#include "base/span.h"

// Prints the content or messages in the member `list` of the result. An image, a sound or other data is only described.
void content_print(struct span result, const char *list);
// Writes each image, sound and other data into a new file in the folder, and names the files on standard error.
bool content_save(struct span result, const char *list, const char *folder, struct err *err) MUST_CHECK;

#endif
