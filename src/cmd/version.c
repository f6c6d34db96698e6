// Owns `postern version`.
#include "base/json.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "command_list.h"
#include "mcp/revision.h"
#include <stdio.h>
#include <stdlib.h>

static int run(const struct flags *flags)
{
    if (!output_wants_json(flags)) {
        printf("postern %s (MCP %s to %s)\n", POSTERN_VERSION, revision_text(REVISION_2024_11_05),
               revision_text(REVISION_LATEST));
        return EXIT_OK;
    }
    json_t *tree = json_pack("{s:s,s:[]}", "version", POSTERN_VERSION, "revisions");
    for (int i = REVISION_2024_11_05; i <= REVISION_LATEST; i++)
        json_array_append_new(json_object_get(tree, "revisions"), json_string(revision_text((enum revision)i)));
    char *text = json_dumps(tree, 0);
    puts(text);
    free(text);
    json_decref(tree);
    return EXIT_OK;
}

static const struct flag flags_table[] = {FLAG_JSON, {0}};

const struct command version_command = {
    .name = "version",
    .synopsis = "version",
    .summary = "Print the version and the supported protocol revisions",
    .flags = flags_table,
    .run = run,
};
