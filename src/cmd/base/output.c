// Owns safe output in the form that is asked for: text of servers on a terminal, and JSON.
#include "cmd/base/output.h"
#include "base/mem.h"
#include "base/scan.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void output_tame(char *text, size_t len, const char *allowed)
{
    unsigned char *bytes = (unsigned char *)text;
    scan_mend(text, len);
    for (size_t i = 0; i < len; i++)
        if (bytes[i] == 0xC2 && i + 1 < len && bytes[i + 1] >= 0x80 && bytes[i + 1] < 0xA0)  // U+0080 to U+009F
            bytes[i] = bytes[i + 1] = ' ';
        else if (!bytes[i] || (bytes[i] < 0x20 && !strchr(allowed, bytes[i])) || bytes[i] == 0x7f)
            bytes[i] = ' ';
}

char *output_text_of(struct span object, const char *key)
{
    struct span raw;
    struct buf text = {0};
    if (scan_find(object, key, &raw) && scan_is_string(raw))
        scan_decode(raw, &text);
    output_tame(text.at, text.len, "\n\t");
    return buf_take(&text, NULL);
}

bool output_wants_json(const struct flags *flags) { return flags->json || !isatty(STDOUT_FILENO); }

void output_put_duration(int64_t seconds, struct buf *out)
{
    long long all = seconds;
    if (all >= 86400)
        buf_printf(out, "%lldd %lldh", all / 86400, all % 86400 / 3600);
    else if (all >= 3600)
        buf_printf(out, "%lldh %lldm", all / 3600, all % 3600 / 60);
    else
        buf_printf(out, "%lldm %llds", all / 60, all % 60);
}

void output_json_text(struct span json)
{
    struct buf shown = {0};
    if (isatty(STDOUT_FILENO))
        scan_put_shown(json, &shown);
    struct span text = shown.len ? buf_span(&shown) : json;
    fwrite(text.at, 1, text.len, stdout);
    putchar('\n');
    buf_release(&shown);
}

void output_json(json_t *tree)
{
    char *text = json_dumps(tree, JSON_INDENT(2) | JSON_ENCODE_ANY);
    output_json_text(span_of(text));
    free(text);
    json_decref(tree);
}

void output_stderr_of(const char *server, const char *lines)
{
    if (!*lines)
        return;
    fprintf(stderr, "postern: the last lines that server \"%s\" wrote to stderr:\n", server);
    while (*lines) {
        size_t len = strcspn(lines, "\n");
        char *line = mem_copy(lines, len);
        output_tame(line, len, "\t");
        fprintf(stderr, "  %s\n", line);
        free(line);
        lines += len + (lines[len] == '\n');
    }
}
