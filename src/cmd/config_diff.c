// Owns `postern config diff`: the changes that a reload would make, without a gateway.
#include "config_diff.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "config/config.h"
#include "config/diff.h"
#include <stdio.h>

static void print(const struct flags *flags, const struct config_diff *diff)
{
    if (output_wants_json(flags)) {
        output_json(config_diff_json(diff));
        return;
    }
    struct buf text = {0};
    config_diff_put(diff, &text);
    fputs(config_diff_is_empty(diff) ? "no differences\n" : buf_text(&text), stdout);
    buf_release(&text);
}

// Both files are compared as they are written: the environment that counts is the gateway's, not that of this command.
int config_diff_run(const struct flags *flags)
{
    struct err err = {0};
    if (!flags->args[1] || !flags->args[2])
        return fail_with(EXIT_USAGE, "config diff: needs two files, the old one and the new one");
    struct config *before = config_load_literal(flags->args[1], &err);
    struct config *after = before ? config_load_literal(flags->args[2], &err) : NULL;
    struct config_diff *diff = after ? config_diff_new(before, after, false) : NULL;
    int code = EXIT_OK;
    if (diff) {
        print(flags, diff);
        code = config_diff_fixed(diff) ? EXIT_NEGATIVE : EXIT_OK;
    } else {
        code = fail_with_err(&err);
    }
    config_diff_free(diff);
    config_unref(after);
    config_unref(before);
    return code;
}
