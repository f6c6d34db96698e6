// Owns `postern vault status|rotate`: listing the keys that seal the tokens of users, and adding a new one.
#include "auth/grant/vault.h"
#include "base/json.h"
#include "base/mem.h"
#include "cmd/base/fail.h"
#include "cmd/base/grants.h"
#include "cmd/base/output.h"
#include "cmd/base/table.h"
#include "command_list.h"
#include "store/state.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct place {
    struct config *config;  // NULL: without a configuration, the usual places are used
    struct record_store *records;
    struct vault *vault;
};

static void print_json(json_t *tree)
{
    char *text = json_dumps(tree, JSON_INDENT(2));
    puts(text);
    free(text);
    json_decref(tree);
}

#define DAMAGED_HINT "; 'postern connections' lists the grants"

static int status(struct place *place, const struct flags *flags)
{
    static const char *const titles[] = {"KEY", "STATE", "RECORDS", NULL};
    struct err err = {0};
    struct vault_status status;
    struct table table = {.titles = titles};
    json_t *keys = json_array();
    bool missing = false;
    if (!vault_status(place->vault, place->records, &status, &err)) {
        json_decref(keys);
        return fail_with_err(&err);
    }
    size_t damaged = status.foreign + status.damaged;
    for (size_t i = 0; i < status.count; i++) {
        const struct vault_key *key = &status.keys[i];
        const char *state = key->current ? "current" : key->in_ring ? "old" : "missing";
        char count[32];
        snprintf(count, sizeof count, "%zu", key->records);
        missing = missing || !key->in_ring;
        table_add(&table, (const char *const[]){key->id, state, count, NULL});
        json_array_append_new(
            keys, json_pack("{s:s,s:s,s:I}", "id", key->id, "state", state, "records", (json_int_t)key->records));
    }
    if (output_wants_json(flags)) {
        print_json(json_pack("{s:s,s:s,s:O,s:I}", "store", record_path(place->records), "source",
                             vault_source(place->vault), "keys", keys, "damaged", (json_int_t)damaged));
    } else {
        printf("%s, sealed with keys of %s\n", record_path(place->records), vault_source(place->vault));
        table_print(&table);
    }
    table_release(&table);
    json_decref(keys);
    if (damaged)
        return fail_with(EXIT_NEGATIVE,
                         "records that are damaged, or were written by a later version: %zu" DAMAGED_HINT, damaged);
    if (missing)
        return fail_with(EXIT_NEGATIVE, "records are sealed with keys that are not in %s: restore those keys",
                         vault_source(place->vault));
    return EXIT_OK;
}

static int rotate(struct place *place, const struct flags *flags)
{
    struct err err = {0};
    struct vault_rotation done;
    if (!vault_rotate(place->vault, place->records, &done, &err))
        return fail_with_err(&err);
    if (output_wants_json(flags))
        print_json(json_pack("{s:s,s:b,s:I,s:I,s:I}", "key", done.id, "new", done.made, "resealed",
                             (json_int_t)done.resealed, "dropped", (json_int_t)done.dropped, "damaged",
                             (json_int_t)done.damaged));
    else
        printf("%s key %s; records sealed again: %zu, old keys dropped: %zu\n", done.made ? "new" : "current", done.id,
               done.resealed, done.dropped);
    if (!done.made)
        fprintf(stderr,
                "postern: %s is not writable by postern: to rotate, put a new key before the others, restart the "
                "gateway, and run this again\n",
                vault_source(place->vault));
    if (done.damaged)
        return fail_with(EXIT_NEGATIVE, "damaged records, which were left unchanged: %zu" DAMAGED_HINT, done.damaged);
    return EXIT_OK;
}

// Uses the files of the configuration, if one exists.
static int open_place(struct place *place, const struct flags *flags)
{
    struct err err = {0};
    struct record_config records = {0};
    struct vault_config vault = {0};
    char *path = config_path(flags->config);
    if (path && !(place->config = config_load(path, NULL, &err))) {
        free(path);
        return fail_with(EXIT_CONFIG, "%s", err.detail);
    }
    free(path);
    if (place->config) {
        records = place->config->store;
        vault = place->config->vault;
    }
    char *store = record_place(&records);
    bool there = record_is_there(&records);
    int code = there ? EXIT_OK : fail_with(EXIT_NEGATIVE, "%s: the store does not exist yet", store);
    free(store);
    if (there &&
        (!(place->records = record_open(&records, &err)) || !(place->vault = vault_open(&vault, place->records, &err))))
        code = fail_with_err(&err);
    return code;
}

static int run(const struct flags *flags)
{
    struct place place = {0};
    bool rotates = strcmp(flags->args[0], "rotate") == 0;
    if (!rotates && strcmp(flags->args[0], "status") != 0)
        return fail_with(EXIT_USAGE, "vault %s: unknown subcommand; use status or rotate", flags->args[0]);
    int code = open_place(&place, flags);
    if (place.vault && (!rotates || grants_lasts(place.config, &code)))
        code = rotates ? rotate(&place, flags) : status(&place, flags);
    vault_free(place.vault);
    record_close(place.records);
    config_unref(place.config);
    return code;
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    FLAG_JSON,
    {0},
};

const struct command vault_command = {
    .name = "vault",
    .synopsis = "vault status|rotate [--config FILE]",
    .summary = "Show or rotate the keys that seal the tokens of users",
    .details =
        "status  lists the keys and the number of records that each key seals. Exit status 1: a key is missing, or\n"
        "        a record is damaged.\n"
        "rotate  creates a new key, puts it first in the file and seals every record with it. A rotation that was\n"
        "        interrupted can be run again, and a running gateway uses the new key. Old keys stay in the file\n"
        "        until a later rotation finds that no record needs them. Back up the file before and after.",
    .flags = flags_table,
    .min_args = 1,
    .max_args = 1,
    .run = run,
};
