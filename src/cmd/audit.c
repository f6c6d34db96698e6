// Owns `postern audit` and `postern audit verify`: reading the audit database, and checking its chain.
#include "store/audit/audit.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/option.h"
#include "cmd/base/configuration.h"
#include "cmd/base/fail.h"
#include "cmd/base/output.h"
#include "cmd/base/table.h"
#include "command_list.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DEFAULT_LIMIT 100
#define POLL_MS 250

static const char *const titles[TABLE_COLUMNS + 1] = {"TIME", "SUBJECT", "EVENT", "RESULT", NULL};

// ---- what to show ---------------------------------------------------------------------------

static bool read_limit(const char *text, int64_t *limit)
{
    char *end;
    *limit = strtoll(text, &end, 10);
    return end != text && !*end && *limit >= 0;
}

static bool read_filter(const struct flags *flags, struct audit_filter *filter)
{
    *filter = (struct audit_filter){.subject = flags->subject,
                                    .tenant = flags->tenant,
                                    .server = flags->server,
                                    .name = flags->tool,
                                    .denied = flags->denied,
                                    .limit = flags->since ? 0 : DEFAULT_LIMIT};
    if (flags->since && !options_time(flags->since, &filter->since_ms)) {
        (void)fail_with(EXIT_USAGE, "audit: --since must be a duration before now such as 1h, or a date such as "
                                    "2027-01-31 or 2027-01-31T12:00:00Z");
        return false;
    }
    if (flags->until && !options_time(flags->until, &filter->until_ms)) {
        (void)fail_with(EXIT_USAGE, "audit: --until must be a duration before now such as 1h, or a date such as "
                                    "2027-01-31 or 2027-01-31T12:00:00Z");
        return false;
    }
    if (flags->limit && !read_limit(flags->limit, &filter->limit)) {
        (void)fail_with(EXIT_USAGE, "audit: --limit must be a number; 0 shows all");
        return false;
    }
    return true;
}

// ---- rows for people ------------------------------------------------------------------------

struct cells {
    struct buf time, who, what, result;
};

static void put_what(struct buf *out, const struct audit_record *record)
{
    if (record->event != AUDIT_CALL)
        buf_put_text(out, audit_row_event_text(record->event));
    if (record->event == AUDIT_GAP)
        buf_printf(out, ": %" PRId64 " records were dropped", record->count);
    if (record->event == AUDIT_RETENTION)
        buf_printf(out, ": %" PRId64 " rows deleted, up to %" PRId64, record->count, record->first_seq - 1);
    if (record->server.len)
        buf_printf(out, "%s%.*s", out->len ? " " : "", SPAN_ARG(record->server));
    bool token = record->event == AUDIT_TOKEN;
    struct span words[] = {token || !record->name.len ? record->method : (struct span){0}, record->name,
                           token ? record->token : (struct span){0}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (words[i].len)
            buf_printf(out, "%s%.*s", out->len ? " " : "", SPAN_ARG(words[i]));
}

static void put_result(struct buf *out, const struct audit_record *record)
{
    if (record->event == AUDIT_GAP || record->event == AUDIT_RETENTION)
        return;
    buf_put_text(out, audit_row_status_text(record->status));
    if (record->reason.len && !span_is(record->reason, audit_row_status_text(record->status)))
        buf_printf(out, " %.*s", SPAN_ARG(record->reason));
    if (record->rule.len && record->decision == AUDIT_DENY)
        buf_printf(out, " by %.*s", SPAN_ARG(record->rule));
    if (record->duration_us)
        buf_printf(out, " %.1f ms", (double)record->duration_us / 1000);
}

static void fill(struct cells *cells, const struct audit_row *row)
{
    const struct audit_record *record = &row->record;
    buf_put_span(&cells->time, row->time);
    if (record->tenant.len && !span_is(record->tenant, "default"))
        buf_printf(&cells->who, "%.*s/", SPAN_ARG(record->tenant));
    buf_put_span(&cells->who, record->subject.len ? record->subject : span_of("-"));
    put_what(&cells->what, record);
    put_result(&cells->result, record);
}

static void clear(struct cells *cells)
{
    buf_release(&cells->time);
    buf_release(&cells->who);
    buf_release(&cells->what);
    buf_release(&cells->result);
}

// Rows are printed as they are read, so the widths are fixed; most cells fit.
static void print_line(struct cells *cells)
{
    struct buf *all[] = {&cells->time, &cells->who, &cells->what, &cells->result};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t k = 0; k < all[i]->len; k++)
            if ((unsigned char)all[i]->at[k] < 0x20 || all[i]->at[k] == 0x7f)
                all[i]->at[k] = ' ';
    printf("%s  %-20s  %-40s  %s\n", buf_text(all[0]), buf_text(all[1]), buf_text(all[2]), buf_text(all[3]));
}

// ---- show -----------------------------------------------------------------------------------

static void show_row(const struct audit_row *row, const struct flags *flags, struct table *table)
{
    struct cells cells = {0};
    if (output_wants_json(flags)) {
        output_json_text(row->json);
        return;
    }
    fill(&cells, row);
    if (flags->follow)
        print_line(&cells);
    else
        table_add(table, (const char *const[]){buf_text(&cells.time), buf_text(&cells.who), buf_text(&cells.what),
                                               buf_text(&cells.result)});
    clear(&cells);
}

static int show(const struct flags *flags, const char *path)
{
    struct err err = {0};
    struct audit_filter filter;
    struct audit_row row;
    struct table table = {.titles = titles};
    enum audit_next next = AUDIT_READ_FAILED;
    if (!read_filter(flags, &filter))
        return EXIT_USAGE;
    struct audit_reader *reader = audit_reader_open(path, &filter, &err);
    if (!reader)
        return fail_with_err(&err);
    do {
        while ((next = audit_reader_next(reader, &row, &err)) == AUDIT_READ_ROW)
            show_row(&row, flags, &table);
        if (!flags->follow)
            break;
        fflush(stdout);
        nanosleep(&(struct timespec){.tv_nsec = POLL_MS * 1000000L}, NULL);
    } while (next == AUDIT_READ_END && !ferror(stdout));
    if (!flags->follow && !output_wants_json(flags))
        table_print(&table);
    table_release(&table);
    audit_reader_close(reader);
    return next == AUDIT_READ_FAILED ? fail_with_err(&err) : EXIT_OK;
}

// ---- verify ---------------------------------------------------------------------------------

struct report {
    json_t *findings;
    bool json;
};

static void on_finding(void *arg, int64_t seq, const char *text)
{
    struct report *report = arg;
    if (report->json)
        json_array_append_new(report->findings, json_pack("{s:I,s:s}", "seq", (json_int_t)seq, "problem", text));
    else
        puts(text);
}

static void print_verdict(const struct audit_verdict *verdict, const char *path, struct report *report)
{
    if (!report->json) {
        printf("%s: %" PRId64 " rows (%" PRId64 " to %" PRId64 "), %zu finding%s, %" PRId64 " records dropped\n", path,
               verdict->rows, verdict->first_seq, verdict->last_seq, verdict->findings,
               verdict->findings == 1 ? "" : "s", verdict->dropped);
        for (enum audit_chain chain = 0; chain < AUDIT_CHAINS; chain++)
            printf("head %s of %s\n", verdict->head[chain], audit_row_chain_text(chain));
        return;
    }
    json_t *heads = json_object();
    for (enum audit_chain chain = 0; chain < AUDIT_CHAINS; chain++)
        json_object_set_new(heads, audit_row_chain_text(chain), json_string(verdict->head[chain]));
    json_t *out = json_pack("{s:s,s:I,s:I,s:I,s:I,s:o,s:O}", "file", path, "rows", (json_int_t)verdict->rows,
                            "first_seq", (json_int_t)verdict->first_seq, "last_seq", (json_int_t)verdict->last_seq,
                            "dropped", (json_int_t)verdict->dropped, "heads", heads, "findings", report->findings);
    char *text = json_dumps(out, JSON_INDENT(2));
    puts(text);
    free(text);
    json_decref(out);
}

static int verify(const struct flags *flags, const char *path)
{
    struct err err = {0};
    struct audit_verdict verdict;
    struct report report = {.findings = json_array(), .json = output_wants_json(flags)};
    bool read = audit_verify(path, on_finding, &report, &verdict, &err);
    if (read)
        print_verdict(&verdict, path, &report);
    json_decref(report.findings);
    if (!read)
        return fail_with_err(&err);
    return verdict.findings ? EXIT_NEGATIVE : EXIT_OK;
}

// ---- the command ----------------------------------------------------------------------------

// A flag that would be ignored is an error.
static const char *unwanted(const struct flags *flags)
{
    return flags->since     ? "since"
           : flags->until   ? "until"
           : flags->subject ? "subject"
           : flags->tenant  ? "tenant"
           : flags->server  ? "server"
           : flags->tool    ? "tool"
           : flags->limit   ? "limit"
           : flags->denied  ? "denied"
           : flags->follow  ? "follow"
                            : NULL;
}

static int run(const struct flags *flags)
{
    int code = EXIT_OK;
    bool checks = flags->count == 1;
    if (checks && strcmp(flags->args[0], "verify") != 0)
        return fail_with(EXIT_USAGE, "audit %s: unknown subcommand; use verify, or omit it to show the rows",
                         flags->args[0]);
    if (checks && unwanted(flags))
        return fail_with(EXIT_USAGE, "audit verify: does not accept --%s", unwanted(flags));
    char *path = configuration_audit_path(flags, &code);
    if (!path)
        return code;
    code = checks ? verify(flags, path) : show(flags, path);
    free(path);
    return code;
}

static const struct flag flags_table[] = {
    FLAG_CONFIG,
    {"file", "DB", FLAG(file), "The database; default: the one in the configuration"},
    {"since", "TIME", FLAG(since), "Only rows since this time: 1h (ago), 2027-01-31 or 2027-01-31T12:00:00Z, in UTC"},
    {"until", "TIME", FLAG(until), "Only rows up to this time"},
    {"subject", "NAME", FLAG(subject), "Only rows of this subject"},
    {"tenant", "NAME", FLAG(tenant), "Only rows of this tenant"},
    {"server", "NAME", FLAG(server), "Only calls to this server"},
    {"tool", "NAME", FLAG(tool), "Only calls to the tool, prompt or resource with this name (the server's own name)"},
    {"denied", NULL, FLAG(denied), "Only denied calls"},
    {"limit", "N", FLAG(limit), "The last N rows; default: 100, or all with --since; 0 shows all"},
    {"follow", NULL, FLAG_LETTER(follow, 'f'), "Keep printing rows as they are written"},
    FLAG_JSON,
    {0},
};

const struct command audit_command = {
    .name = "audit",
    .synopsis = "audit [verify] [--config FILE | --file DB] [--since TIME] [--subject NAME] [--tool NAME] [--denied] "
                "[-f]",
    .summary = "Show recorded calls and events, or verify the log",
    .details =
        "Rows are a table on a terminal and JSON lines in a pipe, the oldest first.\n"
        "verify  checks the chains of hashes and lists each row that was changed, moved or removed. Exit status 1:\n"
        "        at least one was found. Keep a copy of the printed heads in another place: an attacker who can write\n"
        "        the file can create new chains, but not with the same heads.",
    .flags = flags_table,
    .max_args = 1,
    .run = run,
};
