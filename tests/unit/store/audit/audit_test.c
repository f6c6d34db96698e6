// Tests the audit log: the chain and changes that break it, retention, crashes, full queues and disks, readers during writes.
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "folder.h"
#include "no_threads.h"
#include "run_until.h"
#include "store/audit/audit.h"
#include <inttypes.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define DAY_MS 86400000LL

// ---- the folder and the loop of a test ------------------------------------------------------

static char path[96], lines[96];
static struct loop *loop;
static struct loop *inherited;  // the parent's loop in a child process, which uses its own
static struct audit *audit;

static int set_up(void **state)
{
    struct err err;
    if (make_directory(state) != 0)
        return -1;
    snprintf(path, sizeof path, "%s/audit.db", directory);
    snprintf(lines, sizeof lines, "%s/audit.jsonl", directory);
    alarm(240);
    return (loop = loop_new(&err)) ? 0 : -1;
}

static int tear_down(void **state)
{
    audit_close(audit);
    audit = NULL;
    loop_free(loop);
    return remove_directory(state);
}

static void start(struct audit_config config)
{
    struct err err = {0};
    config.path = path;
    if (!config.queue)
        config.queue = 1000;
    audit = audit_open(loop, &config, &err);
    if (!audit)
        fail_msg("%s", err.detail);
}

static void stop(void)
{
    audit_close(audit);
    audit = NULL;
}

#define run_until(condition) run_loop_until(loop, condition)

static void on_stop(struct loop_timer *timer)
{
    (void)timer;
    loop_stop(loop);
}

static bool is_drained(void) { return audit_stats(audit).queued == 0; }
static bool is_failing(void) { return audit_stats(audit).failing; }

// ---- records --------------------------------------------------------------------------------

#define DIGEST "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  // sha256 of {}

static struct audit_record record(const char *name)
{
    return (struct audit_record){.request = span_of("r-0001"),
                                 .tenant = span_of("acme"),
                                 .provider = span_of("bearer"),
                                 .subject = span_of("alice"),
                                 .proof = span_of("bearer"),
                                 .token = span_of("Ab3dEf9h"),
                                 .server = span_of("files"),
                                 .kind = span_of("tool"),
                                 .name = span_of(name),
                                 .method = span_of("tools/call"),
                                 .decision = AUDIT_ALLOW,
                                 .rule = span_of("allow-files"),
                                 .policy = span_of("sha256:0123456789abcdef"),
                                 .arguments_sha256 = span_of(DIGEST),
                                 .status = AUDIT_OK,
                                 .duration_us = 1234,
                                 .bytes_in = 100,
                                 .bytes_out = 2000};
}

static int64_t moment;  // the time of the next records; 0: now

static void put(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "tool-%zu", i);
        struct audit_record one = record(name);
        one.time_ms = moment;
        assert_true(audit_put(audit, &one));
    }
}

static void write_rows(size_t count)
{
    start((struct audit_config){0});
    put(count);
    run_until(is_drained());
    stop();
}

static void sql_on(const char *file, const char *text)
{
    sqlite3 *sqlite;
    char *problem = NULL;
    assert_int_equal(sqlite3_open(file, &sqlite), SQLITE_OK);
    sqlite3_exec(sqlite, text, NULL, NULL, &problem);
    if (problem)
        fail_msg("%s: %s", text, problem);
    sqlite3_close(sqlite);
}

static void sql(const char *text) { sql_on(path, text); }

static int64_t number(const char *text)
{
    sqlite3 *sqlite;
    sqlite3_stmt *select;
    assert_int_equal(sqlite3_open_v2(path, &sqlite, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(sqlite, text, -1, &select, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(select), SQLITE_ROW);
    int64_t value = sqlite3_column_int64(select, 0);
    sqlite3_finalize(select);
    sqlite3_close(sqlite);
    return value;
}

// ---- verify ---------------------------------------------------------------------------------

static struct buf findings;

static void on_finding(void *arg, int64_t seq, const char *text)
{
    (void)arg;
    buf_printf(&findings, "%s%" PRId64 ": %s", findings.len ? "\n" : "", seq, text);
}

static struct audit_verdict verify(void)
{
    struct err err = {0};
    struct audit_verdict verdict;
    buf_release(&findings);
    if (!audit_verify(path, on_finding, NULL, &verdict, &err))
        fail_msg("%s", err.detail);
    return verdict;
}

static void assert_clean(int64_t first, int64_t last)
{
    struct audit_verdict verdict = verify();
    assert_string_equal(buf_text(&findings), "");
    assert_int_equal(verdict.findings, 0);
    assert_int_equal(verdict.first_seq, first);
    assert_int_equal(verdict.last_seq, last);
    assert_int_equal(verdict.rows, last - first + 1);
    buf_release(&findings);
}

static void assert_found(const char *text)
{
    verify();
    assert_string_equal(buf_text(&findings), text);
    buf_release(&findings);
}

#define CHANGED(seq) "row " #seq " does not match its hash: it was changed, or the row before it was replaced"

// ---- rows -----------------------------------------------------------------------------------

static struct audit_reader *reader;

static struct audit_reader *open_reader(const struct audit_filter *filter)
{
    struct err err = {0};
    struct audit_reader *opened = audit_reader_open(path, filter, &err);
    if (!opened)
        fail_msg("%s", err.detail);
    return opened;
}

static bool next(struct audit_row *row)
{
    struct err err = {0};
    enum audit_next got = audit_reader_next(reader, row, &err);
    if (got == AUDIT_READ_FAILED)
        fail_msg("%s", err.detail);
    return got == AUDIT_READ_ROW;
}

static void a_row_holds_the_record_and_its_canonical_json_is_as_documented(void **state)
{
    (void)state;
    struct audit_row row;
    struct audit_record full = record("read_file");
    full.time_ms = 1800000000123;  // 2027-01-15T08:00:00.123Z
    full.arguments = span_of("{\"path\":\"/etc/\\u0000\"}");
    full.status = AUDIT_TIMEOUT;
    full.reason = span_of("upstream_timeout");
    start((struct audit_config){0});
    assert_true(audit_put(audit, &full));
    assert_true(audit_put(audit, &(struct audit_record){.time_ms = 1800000000000, .event = AUDIT_CALL}));
    assert_true(audit_put(audit, &(struct audit_record){.time_ms = 1800000000000, .event = AUDIT_POLICY}));
    run_until(is_drained());
    assert_int_equal(audit_stats(audit).last_seq, 3);
    assert_int_equal(audit_stats(audit).written, 3);
    struct audit_filter all = {0};
    reader = open_reader(&all);
    assert_true(next(&row));
    static const char shared[] =
        "{\"event\":\"call\",\"tenant\":\"acme\",\"provider\":\"bearer\",\"subject\":\"alice\",\"proof\":\"bearer\","
        "\"token\":\"Ab3dEf9h\",\"server\":\"files\",\"kind\":\"tool\",\"name\":\"read_file\",\"method\":\"tools/"
        "call\","
        "\"decision\":\"allow\",\"rule\":\"allow-files\",\"policy\":\"sha256:0123456789abcdef\",\"status\":\"timeout\","
        "\"reason\":\"upstream_timeout\"}";
    static const char own[] = "[1,\"2027-01-15T08:00:00.123Z\",\"r-0001\",\"" DIGEST
                              "\",\"{\\\"path\\\":\\\"/etc/\\\\u0000\\\"}\",1234,100,2000]";
    struct buf chained = {0}, json = {0};
    char hash[AUDIT_HASH_CHARS + 1];
    for (int i = 0; i < AUDIT_HASH_CHARS; i++)
        buf_put_char(&chained, '0');
    char *zeros = mem_span(buf_span(&chained));
    assert_span(row.prev, span_of(zeros), "the first row follows zeros");
    secret_digest_hex(span_of(shared), hash);
    buf_printf(&chained, "%s%s", hash, own);
    secret_digest_hex(buf_span(&chained), hash);
    assert_span(row.hash, span_of(hash), "hash = SHA-256(prev, SHA-256(shared), own)");
    buf_printf(
        &json,
        "{\"seq\":1,\"time\":\"2027-01-15T08:00:00.123Z\",%.*s,\"request\":\"r-0001\",\"arguments_sha256\":\"" DIGEST
        "\",\"arguments\":\"{\\\"path\\\":\\\"/etc/\\\\u0000\\\"}\",\"duration_us\":1234,\"bytes_in\":100,"
        "\"bytes_out\":2000,\"prev\":\"%.*s\",\"hash\":\"%s\"}",
        (int)strlen(shared) - 2, shared + 1, SPAN_ARG(row.prev), hash);
    assert_span(row.json, buf_span(&json), "as it is shown");
    assert_int_equal(row.record.status, AUDIT_TIMEOUT);
    assert_span(row.record.token, SPAN("Ab3dEf9h"), "token");
    assert_true(next(&row));
    assert_span(row.prev, span_of(hash), "prev");
    assert_true(next(&row));
    assert_span(row.prev, span_of(zeros), "the first row of another chain follows zeros too");
    assert_true(span_starts(row.json,
                            "{\"seq\":3,\"time\":\"2027-01-15T08:00:00.000Z\",\"event\":\"policy\",\"status\":"
                            "\"error\",\"duration_us\":0,\"bytes_in\":0,\"bytes_out\":0,\"prev\":"));
    assert_false(next(&row));
    audit_reader_close(reader);
    buf_release(&chained);
    buf_release(&json);
    free(zeros);
    stop();
    assert_clean(1, 3);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
}

static void a_row_whose_caller_was_encoded_in_advance_is_the_same(void **state)
{
    (void)state;
    struct audit_row row;
    struct audit_record whole = record("read_file");
    whole.time_ms = 1800000000123;
    whole.subject = span_of("al\"ice\xFF");
    whole.roles = span_of("[\"eng\"]");
    char *who = audit_row_who(&whole);
    struct audit_record ahead = whole;
    ahead.tenant = ahead.provider = ahead.subject = ahead.proof = ahead.token = ahead.roles = (struct span){0};
    ahead.who = who;
    start((struct audit_config){0});
    assert_true(audit_put(audit, &whole) && audit_put(audit, &ahead));
    run_until(is_drained());
    reader = open_reader(&(struct audit_filter){0});
    assert_true(next(&row));
    size_t len = (size_t)((const char *)memmem(row.json.at, row.json.len, ",\"prev\"", 7) - row.json.at);
    char *first = mem_copy(row.json.at, len);
    assert_true(next(&row));
    assert_memory_equal(row.json.at + 8, first + 8, len - 8);  // equal except for seq
    assert_true(span_is(row.record.roles, "[\"eng\"]"));
    audit_reader_close(reader);
    stop();
    free(first);
    free(who);
}

// Rows with equal members share one copy. Members that are equal only when they are concatenated are not shared.
static void rows_share_equal_members_and_no_others(void **state)
{
    (void)state;
    char longer[2000], longest[2000];
    memset(longer, 'x', sizeof longer);
    memset(longest, 'x', sizeof longest);
    longest[1025] = 'y';  // beyond the part that is kept
    struct audit_record all[12];
    for (size_t i = 0; i < COUNT(all); i++)
        all[i] = record("read");
    all[1].duration_us = 77;
    all[1].request = span_of("r-0002");
    all[2].subject = span_of("al");
    all[2].proof = span_of("icebearer");
    all[3].status = AUDIT_ERROR;
    all[4].server = (struct span){0};
    all[4].kind = span_of("filestool");
    all[5].name = span_make(longer, sizeof longer);
    all[6].name = span_make(longest, sizeof longest);
    all[7].name = span_make(longer, 1024);
    all[8].who = ",\"tenant\":\"x\"";
    all[9].who = ",\"tenant\":\"y\"";
    all[11].decision = AUDIT_DENY;
    start((struct audit_config){0});
    for (size_t i = 0; i < COUNT(all); i++)
        assert_true(audit_put(audit, &all[i]));
    run_until(is_drained());
    stop();
    assert_clean(1, COUNT(all));
    assert_int_equal(number("SELECT count(*) FROM segment"), 1);
    assert_int_equal(number("SELECT json_array_length(shared) FROM segment"), 9);
    static const int64_t numbers[] = {0, 0, 1, 2, 3, 4, 4, 5, 6, 7, 0, 8};
    struct audit_row row;
    struct audit_filter any = {0};
    reader = open_reader(&any);
    for (size_t i = 0; i < COUNT(all); i++) {
        struct buf query = {0};
        assert_true(next(&row));
        assert_span(row.record.request, all[i].request, "request");
        assert_int_equal(row.record.duration_us, all[i].duration_us);
        assert_int_equal(row.record.status, all[i].status);
        assert_int_equal(row.record.decision, all[i].decision);
        assert_span(row.record.subject, all[i].who ? SPAN("") : all[i].subject, "subject");
        assert_span(row.record.kind, all[i].kind, "kind");
        assert_int_equal(row.record.name.len, all[i].name.len > 1024 ? 1024 + 3 : all[i].name.len);
        buf_printf(&query, "SELECT rows->%zu->>2 FROM segment", i);
        assert_int_equal(number(buf_text(&query)), numbers[i]);
        buf_release(&query);
    }
    audit_reader_close(reader);
    sql("UPDATE segment SET shared=json_set(shared,'$[0].subject','bob')");
    assert_found("1: " CHANGED(1) "\n2: " CHANGED(2) "\n11: " CHANGED(11));
}

static void invalid_texts_are_kept_as_utf8_and_long_ones_truncated(void **state)
{
    (void)state;
    char *huge = mem_alloc(200000);
    memset(huge, 'x', 199999);
    struct audit_record odd = record("\xff\xfe tool \xc3\xa4 \"q\" \n");
    odd.subject = SPAN("a\0b");
    odd.method = span_of(huge);
    odd.arguments = span_of(huge);
    odd.rule = SPAN("");
    start((struct audit_config){0});
    assert_true(audit_put(audit, &odd));
    free(huge);  // the record was copied
    run_until(is_drained());
    stop();
    assert_clean(1, 1);
    struct audit_row row;
    struct audit_filter all = {0};
    reader = open_reader(&all);
    assert_true(next(&row));
    assert_span(row.record.name, SPAN("\xEF\xBF\xBD\xEF\xBF\xBD tool \xc3\xa4 \"q\" \n"), "name");
    assert_span(row.record.subject,
                SPAN("a\xEF\xBF\xBD"
                     "b"),
                "subject");
    assert_int_equal(row.record.method.len, 1024 + 3);
    assert_int_equal(row.record.arguments.len, 65536 + 3);
    assert_int_equal(row.record.rule.len, 0);
    json_t *tree = json_parse(row.json, "row", &(struct err){0});
    assert_non_null(tree);
    json_decref(tree);
    audit_reader_close(reader);
}

static void arguments_are_recorded_only_if_configured_and_redacted(void **state)
{
    (void)state;
    struct buf out = {0};
    struct audit_row row;
    struct audit_filter all = {0};
    start((struct audit_config){0});
    assert_false(audit_arguments(audit, SPAN("{\"a\":1}"), &out));
    assert_int_equal(out.len, 0);
    stop();

    char *keys[] = {"badge", NULL}, *pointers[] = {"/user/mail", NULL};
    start((struct audit_config){.arguments = true, .redact = {keys, pointers}});
    assert_true(audit_arguments(
        audit, SPAN("{\"password\":\"x\",\"Badge-No\":7,\"user\":{\"mail\":\"m\",\"name\":\"n\"}}"), &out));
    struct audit_record kept = record("tool");
    kept.arguments = buf_span(&out);
    assert_true(audit_put(audit, &kept));
    run_until(is_drained());
    stop();
    buf_release(&out);
    assert_clean(1, 1);
    reader = open_reader(&all);
    assert_true(next(&row));
    assert_span(row.record.arguments,
                SPAN("{\"password\":\"[redacted]\",\"Badge-No\":\"[redacted]\",\"user\":{\"mail\":\"[redacted]\","
                     "\"name\":\"n\"}}"),
                "arguments");
    audit_reader_close(reader);
    sql("UPDATE segment SET rows=json_set(rows,'$[0][5]','{}')");
    assert_found("1: " CHANGED(1));
}

static void json_lines_equal_the_rows_and_their_file_may_be_rotated(void **state)
{
    (void)state;
    char moved[120], line[4096];
    snprintf(moved, sizeof moved, "%s.1", lines);
    start((struct audit_config){.jsonl = lines});
    put(5);
    run_until(is_drained());
    assert_int_equal(rename(lines, moved), 0);
    put(3);
    run_until(is_drained());
    stop();
    struct audit_row row;
    struct audit_filter all = {0};
    reader = open_reader(&all);
    const char *const files[] = {moved, lines};
    for (size_t f = 0; f < 2; f++) {
        FILE *in = fopen(files[f], "r");
        assert_non_null(in);
        for (int i = 0; i < (f ? 3 : 5); i++) {
            assert_true(next(&row));
            assert_non_null(fgets(line, sizeof line, in));
            assert_span(span_make(line, strlen(line) - 1), row.json, "line");
        }
        assert_null(fgets(line, sizeof line, in));
        fclose(in);
    }
    audit_reader_close(reader);
}

static void failed_json_lines_are_counted_and_unhealthy_when_required(void **state)
{
    (void)state;
    start((struct audit_config){.jsonl = "/dev/full", .required = true});
    put(5);
    run_until(is_drained());
    assert_true(audit_stats(audit).line_errors > 0);
    assert_int_equal(audit_stats(audit).written, 5);
    assert_false(audit_healthy(audit));
    stop();
    assert_clean(1, 5);
}

// ---- findings of verify ---------------------------------------------------------------------

#define SET(what) "UPDATE segment SET rows=json_set(rows," what ")"
#define REMOVE(what) "UPDATE segment SET rows=json_remove(rows," what ")"
#define SET_SHARED(what) "UPDATE segment SET shared=json_set(shared," what ")"
#define REPLACE(this, that) "UPDATE segment SET shared=replace(shared,'" this "','" that "')"
#define NEVER(seq) "row " #seq " was changed: it is not a valid row"

static void a_verification_finds_changed_and_removed_rows(void **state)
{
    (void)state;
    static const struct {
        const char *label, *sql, *found;
    } rows[] = {
        {"edited", SET_SHARED("'$[4].subject','bob'"), "5: " CHANGED(5)},
        {"a member removed", "UPDATE segment SET shared=json_remove(shared,'$[4].subject')", "5: " CHANGED(5)},
        {"empty for absent", REPLACE("tool-4", "tool-4\",\"method\":\"\",\"x\":\""), "5: " NEVER(5)},
        {"an unknown word", SET_SHARED("'$[4].decision','maybe'"), "5: " NEVER(5)},
        {"shared with another", SET("'$[4][2]',3"), "5: " CHANGED(5)},
        {"shared with an absent row", SET("'$[4][2]',10"), "5: " NEVER(5)},
        {"shared with nothing", SET_SHARED("'$[4]',json('{}')"), "5: " NEVER(5)},
        {"shared with no object", SET_SHARED("'$[4]','x'"), "5: " NEVER(5)},
        {"nothing shared", REMOVE("'$[4][2]'"), "5: " NEVER(5)},
        {"an additional element", SET("'$[4][#]','bob'"), "5: " NEVER(5)},
        {"an object", SET("'$[4]',json('{}')"), "5: " NEVER(5)},
        {"absent", SET("'$[4][3]',null"), "5: " CHANGED(5)},
        {"white space after its time", "UPDATE segment SET rows=replace(rows,'Z\",4,','Z\", 4,')", "5: " NEVER(5)},
        {"white space after its number", "UPDATE segment SET rows=replace(rows,'\",4,','\",4 ,')", "5: " CHANGED(5)},
        {"white space after its separator", "UPDATE segment SET rows=replace(rows,'\",4,','\",4, ')", "5: " CHANGED(5)},
        {"no UTF-8", "UPDATE segment SET shared=replace(shared,'tool-4',CAST(x'746fff' AS TEXT))",
         "1: rows 1 to 10 were changed: they are not valid rows"},
        {"shared members of the wrong type", "UPDATE segment SET shared='{}'",
         "1: rows 1 to 10 were changed: they are not valid rows"},
        {"no JSON", "UPDATE segment SET rows=rows||'x'", "1: rows 1 to 10 were changed: they are not valid rows"},
        {"a number", SET("'$[4][8]',2001"), "5: " CHANGED(5)},
        {"white space", REPLACE("\"tool-4\"", " \"tool-4\""), "5: " CHANGED(5)},
        {"another spelling", REPLACE("tool-4", "tool-\\u0034"), "5: " CHANGED(5)},
        {"the time", SET("'$[4][1]','2020-01-01T00:00:00.000Z'"), "5: " CHANGED(5)},
        {"its hash", SET("'$[4][9]',json_extract(rows,'$[3][9]')"), "5: " CHANGED(5)},
        {"its seq", SET("'$[4][0]',55"),
         "5: rows 5 to 54 are missing\n6: row 6 is out of order: it is where row 56 belongs\n"
         "7: row 7 is out of order: it is where row 56 belongs\n"
         "8: row 8 is out of order: it is where row 56 belongs\n"
         "9: row 9 is out of order: it is where row 56 belongs\n"
         "10: row 10 is out of order: it is where row 56 belongs\n"
         "11: rows after 10 were not written by postern"},
        {"deleted", REMOVE("'$[4]'"), "5: row 5 is missing"},
        {"deleted in the middle", REMOVE("'$[4]','$[4]','$[4]'"), "5: rows 5 to 7 are missing"},
        {"deleted at the end", REMOVE("'$[8]','$[8]'"), "9: rows 9 to 10 are missing"},
        {"deleted at the beginning", REMOVE("'$[0]','$[0]'"), "1: rows 1 to 2 are missing at the beginning"},
        {"all rows deleted", "DELETE FROM segment", "1: rows 1 to 10 are missing at the end"},
        {"two places", "UPDATE segment SET rows=json_remove(json_set(rows,'$[8][3]','x'),'$[1]')",
         "2: row 2 is missing\n9: " CHANGED(9)},
        {"reordered", SET("'$[4]',json_extract(rows,'$[5]'),'$[5]',json_extract(rows,'$[4]')"),
         "5: row 5 is missing\n5: row 5 is out of order: it is where row 7 belongs"},
        {"copied over the next row", SET("'$[4]',json_extract(rows,'$[3]')"),
         "4: row 4 is out of order: it is where row 5 belongs\n5: row 5 is missing"},
        {"the hash of the previous row", "UPDATE segment SET prev=replace(prev,'0','1')",
         "1: row 1 does not follow row 0: one of them was replaced, or rows between them were removed"},
        {"the segment's place", "UPDATE segment SET seq=2",
         "2: the labels of the segment of row 2 do not match its rows"},
        {"the segment's end", "UPDATE segment SET last=11",
         "11: row 11 is missing\n11: rows after 10 were not written by postern"},
        {"the segment's age", "UPDATE segment SET until=1",
         "1: the labels of the segment of row 1 do not match its rows"},
        {"the anchor moved with the rows",
         "UPDATE segment SET seq=3,prev=json_extract(rows,'$[1][9]');"
         "UPDATE anchor SET first_seq=3,first_prev=(SELECT prev FROM segment) WHERE chain=0;" REMOVE("'$[0]','$[0]'"),
         "3: the anchor of calls was changed: it names row 3 as the first, but the chain begins with row 1"},
        {"the head moved with the rows", REMOVE("'$[9]'") ",last=9;UPDATE anchor SET head_seq=9 WHERE chain=0",
         "9: row 9 is not the last row of calls that was written"},
    };
    char copy[120];
    struct buf command = {0};
    moment =
        clock_wall_ms();  // one time for all rows, so that the labels of a segment fit without its first or last row
    write_rows(10);
    moment = 0;
    assert_clean(1, 10);
    snprintf(copy, sizeof copy, "%s.good", path);
    buf_printf(&command, "VACUUM INTO '%s'", copy);
    sql(buf_text(&command));
    buf_clear(&command);
    for (size_t i = 0; i < COUNT(rows); i++) {
        sql(rows[i].sql);
        verify();
        if (strcmp(buf_text(&findings), rows[i].found) != 0)
            fail_msg("%s: found \"%s\"", rows[i].label, buf_text(&findings));
        buf_release(&findings);
        (void)unlink(path);
        buf_printf(&command, "VACUUM INTO '%s'", path);
        sql_on(copy, buf_text(&command));
        buf_clear(&command);
    }
    buf_release(&command);
    assert_clean(1, 10);
}

// The changed row gets a valid new hash, but does not fit the hash in the next row.
static void a_verification_finds_a_row_that_was_changed_and_rehashed(void **state)
{
    (void)state;
    write_rows(10);
    sql(SET_SHARED("'$[4].subject','mallory'"));
    struct audit_row row;
    struct audit_filter all = {0};
    struct buf chained = {0}, update = {0};
    char hash[AUDIT_HASH_CHARS + 1];
    reader = open_reader(&all);
    while (next(&row) && row.seq != 5)
        ;
    const char *event = memmem(row.json.at, row.json.len, ",\"event\"", 8);
    const char *request = memmem(row.json.at, row.json.len, ",\"request\"", 10);
    buf_printf(&chained, "{%.*s}", (int)(request - event) - 1, event + 1);
    secret_digest_hex(buf_span(&chained), hash);
    buf_clear(&chained);
    buf_printf(&chained, "%.*s%s[5,\"%.*s\",\"r-0001\",\"" DIGEST "\",null,1234,100,2000]", SPAN_ARG(row.prev), hash,
               SPAN_ARG(row.time));
    secret_digest_hex(buf_span(&chained), hash);
    audit_reader_close(reader);
    buf_printf(&update, SET("'$[4][9]','%s'"), hash);
    sql(buf_text(&update));
    buf_release(&update);
    buf_release(&chained);
    assert_found("6: " CHANGED(6));
}

static void the_chain_continues_after_a_change_that_stays_visible(void **state)
{
    (void)state;
    write_rows(8);
    write_rows(2);
    sql("DELETE FROM segment WHERE seq=9");
    write_rows(5);
    assert_found("9: rows 9 to 10 are missing");
    assert_int_equal(number("SELECT max(seq) FROM audit"), 15);
    sql("INSERT INTO segment SELECT "
        "99,99,chain,since,until,bytes,prev,shared,json_set(json_array(json_extract(rows,'$[4]')),'$[0][0]',99)"
        " FROM segment WHERE seq=11");
    static const char added[] =
        "9: rows 9 to 10 are missing\n16: rows 16 to 98 are missing\n16: rows after 15 were not written "
        "by postern";
    assert_found(added);
    write_rows(1);
    assert_int_equal(number("SELECT max(seq) FROM audit"), 100);
    verify();
    assert_contains(buf_text(&findings), "16: rows 16 to 98 are missing");
    buf_release(&findings);
}

// With sqlite3, an operator reads rows one by one, although the file has segments.
static void the_audit_view_has_the_rows_and_their_members(void **state)
{
    (void)state;
    write_rows(600);
    assert_int_equal(number("SELECT count(*) FROM audit"), 600);
    assert_true(number("SELECT count(*) FROM segment") < 10);
    assert_int_equal(number("SELECT seq FROM audit WHERE name='tool-321' AND subject='alice' AND decision='allow'"),
                     322);
    assert_int_equal(number("SELECT sum(bytes_out) FROM audit"), 600 * 2000);
    assert_int_equal(number("SELECT length(hash) FROM audit WHERE seq=600"), AUDIT_HASH_CHARS);
}

// ---- retention ------------------------------------------------------------------------------

static bool has_deleted(void) { return is_drained() && audit_stats(audit).deleted > 0; }
static bool has_deleted_10000(void) { return audit_stats(audit).deleted == 10000; }

static void old_rows_are_deleted_and_the_chain_still_verifies(void **state)
{
    (void)state;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    start((struct audit_config){.queue = 20000});
    for (int i = 0; i < 10010; i++) {
        struct audit_record one = record("old");
        one.time_ms = (int64_t)now.tv_sec * 1000 - (i < 10000 ? 31 : 29) * DAY_MS;
        assert_true(audit_put(audit, &one));
        if (i == 9999)  // old and new rows are in separate segments
            run_until(is_drained());
    }
    run_until(is_drained());
    stop();
    assert_clean(1, 10010);
    start((struct audit_config){.retention_days = 30});
    run_until(has_deleted_10000());
    put(1);
    run_until(is_drained());
    stop();
    int64_t last = number("SELECT max(seq) FROM audit");  // each deleted chunk has added a row
    assert_in_range(last, 10012, 10020);
    assert_clean(10001, last);
    assert_int_equal(number("SELECT sum(count) FROM audit WHERE event='retention'"), 10000);
    sql("DELETE FROM segment WHERE seq=10001;"
        "UPDATE anchor SET (first_seq,first_prev)=(SELECT seq,prev FROM segment ORDER BY seq LIMIT 1) WHERE chain=0");
    assert_found(
        "10011: the anchor of calls was changed: it names row 10011 as the first, but the chain begins with row 10001");
}

static void a_file_of_only_old_rows_keeps_the_row_that_records_the_deletion(void **state)
{
    (void)state;
    start((struct audit_config){0});
    for (int i = 0; i < 10; i++) {
        struct audit_record one = record("old");
        one.time_ms = 1600000000000;
        assert_true(audit_put(audit, &one));
    }
    run_until(is_drained());
    stop();
    start((struct audit_config){.retention_days = 1});
    run_until(has_deleted());
    stop();
    assert_clean(11, 11);
    write_rows(3);
    assert_clean(11, 14);
}

static void the_audit_file_stays_below_its_maximum_size(void **state)
{
    (void)state;
    enum { LIMIT = 2 << 20 };
    start((struct audit_config){.retention_size = {LIMIT}, .queue = 5000});
    for (int i = 0; i < 8; i++) {
        put(2500);
        run_until(is_drained());
    }
    run_until(has_deleted());
    put(1);
    run_until(is_drained());
    stop();
    struct audit_verdict verdict = verify();
    assert_string_equal(buf_text(&findings), "");
    assert_true(verdict.first_seq > 5000);
    assert_true(verdict.rows > 1000);
    assert_int_equal(verdict.last_seq - verdict.first_seq + 1, verdict.rows);
    struct stat file;
    assert_int_equal(stat(path, &file), 0);
    print_message("%" PRId64 " rows kept in %lld bytes\n", verdict.rows, (long long)file.st_size);
    assert_in_range(file.st_size, LIMIT / 2, LIMIT + LIMIT);  // the file may grow between two checks
}

static void put_event(enum audit_event event, const char *name, int count)
{
    for (int i = 0; i < count; i++) {
        struct audit_record one = record(name);
        one.event = event;
        assert_true(audit_put(audit, &one));
    }
    run_until(is_drained());
}

static void assert_no_findings(void)
{
    verify();
    assert_string_equal(buf_text(&findings), "");
    buf_release(&findings);
}

// A caller that sends endless requests or calls, or refreshes tokens, cannot displace rows of another kind.
static void a_flood_of_one_kind_of_row_does_not_delete_rows_of_another(void **state)
{
    (void)state;
    static const struct {
        enum audit_event event;
        const char *name, *chain;
    } rows[] = {{AUDIT_CALL, "call", "calls"},
                {AUDIT_AUTHENTICATION, "authentication", "authentication"},
                {AUDIT_TOKEN, "token", "administration"}};
    for (size_t flooded = 0; flooded < COUNT(rows); flooded++) {
        (void)unlink(path);
        start((struct audit_config){.retention_size = {256 << 10, 256 << 10, 256 << 10}, .queue = 5000});
        for (size_t i = 0; i < COUNT(rows); i++)
            put_event(rows[i].event, "early", 50);
        for (int k = 0; k < 4; k++)
            put_event(rows[flooded].event, "flood", 2500);
        run_until(has_deleted());
        put_event(rows[flooded].event, "late", 10);
        stop();
        assert_no_findings();
        for (size_t i = 0; i < COUNT(rows); i++) {
            struct buf early = {0}, retention = {0};
            buf_printf(&early, "SELECT count(*) FROM audit WHERE name='early' AND event='%s'", rows[i].name);
            buf_printf(&retention, "SELECT count(*) FROM audit WHERE event='retention' AND kind='%s'", rows[i].chain);
            assert_int_equal(number(buf_text(&early)), i == flooded ? 0 : 50);
            assert_int_equal(number(buf_text(&retention)) > 0, i == flooded);
            buf_release(&early);
            buf_release(&retention);
        }
        assert_true(number("SELECT count(*) FROM audit WHERE name='flood'") < 5000);
    }
}

// Retention has deleted rows of one chain; a row that was removed from another chain is still detected.
static void a_verification_distinguishes_missing_rows_from_deleted_ones(void **state)
{
    (void)state;
    start((struct audit_config){.retention_size = {0, 64 << 10, 0}, .queue = 5000});
    put_event(AUDIT_AUTHENTICATION, "early", 5);
    for (int k = 0; k < 3; k++)
        put_event(AUDIT_CALL, "call", 5);
    for (int k = 0; k < 4; k++)
        put_event(AUDIT_AUTHENTICATION, "flood", 2500);
    run_until(has_deleted());
    stop();
    assert_no_findings();
    assert_int_equal(number("SELECT min(seq) FROM audit"), 6);
    sql("DELETE FROM segment WHERE seq=11");
    assert_found("16: row 16 does not follow row 10: one of them was replaced, or rows between them were removed");
    sql("DELETE FROM segment WHERE seq=16");
    assert_found("20: row 10 is not the last row of calls that was written");
    sql("UPDATE segment SET chain=2 WHERE seq=6");
    verify();
    assert_contains(buf_text(&findings), "6: the labels of the segment of row 6 do not match its rows");
    buf_release(&findings);
}

// ---- the queue ------------------------------------------------------------------------------

static void a_full_queue_drops_counts_and_records_the_gap(void **state)
{
    (void)state;
    struct audit_record one = record("dropped");
    start((struct audit_config){.queue = 8});
    put(8);
    assert_false(audit_losing(audit, clock_now_ms()));
    for (int i = 0; i < 5; i++)
        assert_false(audit_put(audit, &one));
    assert_true(audit_healthy(audit));  // because the audit log is not required
    assert_int_equal(audit_stats(audit).dropped, 5);
    assert_int_equal(audit_stats(audit).queued, 8);
    assert_true(audit_losing(audit, clock_now_ms() + 3600000));  // until the gap is recorded
    run_until(is_drained());
    assert_true(audit_losing(audit, clock_now_ms()));  // and for a while afterwards, for monitoring that polls
    assert_false(audit_losing(audit, clock_now_ms() + 60000));
    put(2);
    run_until(is_drained());
    stop();
    struct audit_verdict verdict = verify();
    assert_int_equal(verdict.findings, 0);
    assert_int_equal(verdict.dropped, 5);
    assert_int_equal(number("SELECT count FROM audit WHERE seq=9 AND event='gap' AND reason='audit_dropped'"), 5);
    assert_int_equal(verdict.rows, 11);
}

static void a_nearly_full_queue_is_unhealthy_when_required(void **state)
{
    (void)state;
    struct audit_record one = record("late");
    start((struct audit_config){.queue = 16, .required = true});
    assert_true(audit_healthy(audit));
    put(13);
    assert_true(audit_healthy(audit));
    put(1);
    assert_false(audit_healthy(audit));
    assert_true(audit_put(audit, &one));  // records of calls in flight still fit
    assert_true(audit_put(audit, &one));
    assert_false(audit_put(audit, &one));
    run_until(is_drained());
    assert_true(audit_healthy(audit));
    stop();
    assert_clean(1, 17);
}

static void large_records_fill_the_queue_by_their_bytes(void **state)
{
    (void)state;
    char *huge = mem_alloc(65536);
    memset(huge, 'x', 65535);
    struct audit_record one = record("large");
    one.arguments = span_of(huge);
    start((struct audit_config){.queue = 1000000});
    size_t taken = 0;
    while (audit_put(audit, &one))
        assert_true(++taken < 2000);
    free(huge);
    assert_in_range(taken, 900, 1024);
    run_until(is_drained());
    stop();
    assert_int_equal(verify().findings, 0);
    assert_int_equal(number("SELECT count(*) FROM audit WHERE event='call'"), taken);
    assert_int_equal(number("SELECT count FROM audit WHERE event='gap'"), 1);
}

static void queued_rows_are_written_when_the_audit_is_closed(void **state)
{
    (void)state;
    start((struct audit_config){0});
    put(500);  // without a turn of the loop
    stop();
    assert_clean(1, 500);
    start((struct audit_config){0});
    stop();
    assert_clean(1, 500);
}

// The number of dropped records is known after the last write. It is written as well, and no timer or task stays in the loop.
static void the_gap_record_is_written_when_the_audit_is_closed(void **state)
{
    (void)state;
    struct audit_record one = record("dropped");
    start((struct audit_config){.queue = 8});
    put(8);
    for (int i = 0; i < 3; i++)
        assert_false(audit_put(audit, &one));
    stop();
    assert_int_equal(verify().dropped, 3);
    assert_clean(1, 9);
    struct loop_timer later = {.on_due = on_stop};
    loop_timer_set(loop, &later, 100);
    loop_run(loop);
}

// ---- waiting --------------------------------------------------------------------------------

enum { WAITS = 3 };
static struct audit_wait waits[WAITS];
static int64_t rows_then[WAITS];  // rows that another connection sees in the file when a wait ends
static size_t waits_over;

static void on_row(struct audit_wait *wait)
{
    rows_then[wait - waits] = number("SELECT count(*) FROM audit");
    waits_over++;
}

static bool are_waits_over(void) { return waits_over == WAITS; }

static void wait_for_rows(void)
{
    waits_over = 0;
    for (int i = 0; i < WAITS; i++) {
        waits[i] = (struct audit_wait){.done = on_row};
        put(1);
        assert_true(audit_wait(audit, &waits[i]));
    }
}

static void a_waiter_is_called_when_the_row_is_in_the_file(void **state)
{
    (void)state;
    start((struct audit_config){.required = true});
    assert_true(audit_required(audit));
    wait_for_rows();
    run_until(are_waits_over());
    for (int i = 0; i < WAITS; i++) {
        assert_true(waits[i].written);
        assert_int_equal(rows_then[i], WAITS);
    }
    assert_int_equal(number("SELECT count(*) FROM segment"), 1);  // the records of one turn are one transaction
    stop();
    assert_clean(1, WAITS);
}

static bool is_first_over(void) { return waits_over == 1; }

static void a_cancelled_waiter_is_not_called(void **state)
{
    (void)state;
    start((struct audit_config){.required = true});
    wait_for_rows();
    list_remove(&waits[0].node);
    list_remove(&waits[2].node);
    run_until(is_first_over());
    run_until(is_drained());
    assert_true(waits[1].written);
    assert_int_equal(waits_over, 1);
    stop();
    assert_clean(1, WAITS);
}

// ---- disks ----------------------------------------------------------------------------------

static bool is_drained_or_failing(void) { return is_drained() || is_failing(); }

static void start_on_a_full_disk(bool required)
{
    struct audit_record one = record("full");
    start((struct audit_config){.queue = 64, .page_limit = 16, .required = required});
    for (int i = 0; i < 100 && !is_failing(); i++) {
        for (int k = 0; k < 32; k++)
            assert_true(audit_put(audit, &one));
        run_until(is_drained_or_failing());
    }
    assert_true(is_failing());
}

static void rows_that_fit_on_a_full_disk_verify_and_a_required_audit_is_unhealthy(void **state)
{
    (void)state;
    for (int required = 0; required < 2; required++) {
        struct audit_record one = record("more");
        start_on_a_full_disk(required);
        struct audit_stats stats = audit_stats(audit);
        assert_true(stats.write_errors >= 1);
        assert_true(stats.written > 0);
        assert_int_equal(stats.queued, 32);
        assert_int_equal(audit_healthy(audit), !required);
        assert_false(audit_wait(audit, &(struct audit_wait){.done = on_row}));
        for (int i = 0; i < 32; i++)
            assert_true(audit_put(audit, &one));
        assert_false(audit_put(audit, &one));  // the queue is bounded
        int64_t began = clock_now_ms();
        stop();
        assert_true(clock_now_ms() - began < 4000);
        assert_clean(1, (int64_t)stats.written);
        (void)unlink(path);
    }
}

// Writes ten rows, and then simulates a full disk by a limit on the file size. Setting the returned limit frees the disk.
static struct rlimit start_and_fill_disk(void)
{
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    start((struct audit_config){.required = true});
    put(10);
    run_until(is_drained());
    small = before;
    small.rlim_cur = 65536;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    put(500);
    return before;
}

static void rows_queued_while_the_disk_was_full_are_written_later(void **state)
{
    (void)state;
    struct rlimit before = start_and_fill_disk();
    run_until(is_failing());
    assert_false(audit_healthy(audit));
    put(5);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    run_until(is_drained());
    assert_true(audit_healthy(audit));
    assert_int_equal(audit_stats(audit).dropped, 0);
    assert_int_equal(audit_stats(audit).written, 515);
    stop();
    assert_clean(1, 515);
}

static void a_waiter_is_called_when_the_row_cannot_be_written(void **state)
{
    (void)state;
    struct rlimit before = start_and_fill_disk();
    wait_for_rows();
    run_until(are_waits_over());
    for (int i = 0; i < WAITS; i++)
        assert_false(waits[i].written);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    run_until(is_drained());  // the rows are written later
    stop();
    assert_clean(1, 510 + WAITS);
}

// Runs as a user whose limit allows no new thread for a while.
static void write_without_threads(void)
{
    inherited = loop;
    loop = loop_new(&(struct err){0});
    start((struct audit_config){.required = true});
    put(10);
    run_until(is_drained());
    struct rlimit before = forbid_threads(path);
    put(5);
    run_until(is_failing());
    assert_false(audit_healthy(audit));
    assert_int_equal(audit_stats(audit).written, 10);
    allow_threads(before);
    run_until(is_drained());
    assert_true(audit_healthy(audit));
    assert_int_equal(audit_stats(audit).dropped, 0);
}

static void records_wait_while_no_thread_can_be_started(void **state)
{
    (void)state;
    int status = -1;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        write_without_threads();
        stop();
        loop_free(loop);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(verify().rows, 15);
    assert_string_equal(buf_text(&findings), "");
    buf_release(&findings);
}

static void a_locked_file_delays_the_close_only_briefly(void **state)
{
    (void)state;
    sqlite3 *other;
    write_rows(3);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    start((struct audit_config){0});
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    put(5);
    int64_t began = clock_now_ms();
    stop();
    assert_in_range(clock_now_ms() - began, 3000, 9000);
    assert_int_equal(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(other);
    assert_clean(1, 3);
}

static void refuse(const char *part)
{
    struct err err = {0};
    struct audit_config config = {.path = path, .queue = 10};
    struct audit_verdict verdict;
    struct audit_filter all = {0};
    assert_null(audit_open(loop, &config, &err));
    assert_contains(err.detail, path);
    assert_contains(err.detail, part);
    err = (struct err){0};
    assert_false(audit_verify(path, NULL, NULL, &verdict, &err));
    assert_contains(err.detail, path);
    assert_null(audit_reader_open(path, &all, &err));
}

static void write_at(long offset, const char *bytes, size_t len)
{
    FILE *out = fopen(path, offset ? "r+" : "w");
    assert_non_null(out);
    assert_int_equal(fseek(out, offset, SEEK_SET), 0);
    assert_int_equal(fwrite(bytes, 1, len, out), len);
    assert_int_equal(fclose(out), 0);
}

static void a_damaged_or_foreign_audit_file_is_refused(void **state)
{
    (void)state;
    char garbage[8192];
    memset(garbage, 'g', sizeof garbage);
    write_at(0, garbage, sizeof garbage);
    refuse("not an audit database");
    (void)unlink(path);

    sql("CREATE TABLE cookies(a)");
    refuse("another program");
    (void)unlink(path);

    write_rows(500);
    write_at(0x4000 * 2, garbage, sizeof garbage);
    refuse("damaged");
    (void)unlink(path);

    write_rows(5);
    sql("PRAGMA user_version=7");
    refuse("newer version");
    sql("PRAGMA user_version=6;DELETE FROM anchor");
    struct err err = {0};
    assert_null(audit_open(loop, &(struct audit_config){.path = path, .queue = 10}, &err));
    assert_contains(err.detail, "anchor");
    assert_null(audit_open(loop, &(struct audit_config){.path = "/nowhere/at/all.db", .queue = 10}, &err));
    assert_contains(err.detail, "/nowhere/at/all.db: cannot access its folder: No such file");
    assert_null(audit_open(loop, &(struct audit_config){.path = path, .jsonl = "/nowhere/x", .queue = 10}, &err));
    assert_null(audit_reader_open("/nowhere/at/all.db", &(struct audit_filter){0}, &err));
    assert_contains(err.detail, "No such file");
}

// ---- crashes --------------------------------------------------------------------------------

static void write_for_ever(void)
{
    start((struct audit_config){.queue = 100000});
    for (;;) {
        put(37);
        run_until(is_drained());
    }
}

static void a_killed_writer_leaves_a_chain_that_verifies_and_continues(void **state)
{
    (void)state;
    int64_t last = 0;
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            inherited = loop;
            loop = loop_new(&(struct err){0});
            write_for_ever();
        }
        struct audit_filter newest = {.limit = 1};
        struct audit_row row = {0};
        struct err err = {0};
        for (int tries = 0; row.seq < last + 500 && tries < 20000; tries++) {
            usleep(1000);
            if (!(reader = audit_reader_open(path, &newest, &err)))
                continue;  // the file does not exist yet
            (void)next(&row);
            audit_reader_close(reader);
        }
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        struct audit_verdict verdict = verify();
        assert_string_equal(buf_text(&findings), "");
        assert_int_equal(verdict.first_seq, 1);
        assert_int_equal(verdict.rows, verdict.last_seq);
        assert_true(verdict.rows >= last + 500);
        last = verdict.last_seq;
    }
    write_rows(5);
    assert_clean(1, last + 5);
}

static void two_processes_append_to_one_chain(void **state)
{
    (void)state;
    write_rows(1);
    pid_t child = fork();
    if (child == 0) {
        inherited = loop;
        loop = loop_new(&(struct err){0});
        start((struct audit_config){.queue = 5000});
        for (int i = 0; i < 50; i++) {
            put(20);
            run_until(is_drained());
        }
        stop();
        _exit(0);
    }
    start((struct audit_config){.queue = 5000});
    for (int i = 0; i < 50; i++) {
        put(20);
        run_until(is_drained());
    }
    stop();
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_clean(1, 2001);
}

// ---- reading --------------------------------------------------------------------------------

static int64_t seen;

static bool follow_to_the_end(void)
{
    struct audit_row row;
    while (next(&row))
        assert_int_equal(row.seq, ++seen);
    return seen == 20000 && is_drained();
}

static struct loop_timer writer;
static int batches;

static void on_write(struct loop_timer *timer)
{
    put(500);
    if (++batches % 10 == 0)
        assert_int_equal(verify().findings, 0);
    if (batches < 40)
        loop_timer_set(loop, timer, 1);
}

static void a_reader_follows_while_rows_are_written(void **state)
{
    (void)state;
    struct audit_filter all = {0};
    seen = batches = 0;
    start((struct audit_config){.queue = 100000});
    writer = (struct loop_timer){.on_due = on_write};
    loop_timer_set(loop, &writer, 0);
    reader = open_reader(&all);
    run_until(follow_to_the_end());
    audit_reader_close(reader);
    stop();
    assert_clean(1, 20000);
    buf_release(&findings);
}

static void audit_filters_select_rows(void **state)
{
    (void)state;
    static const struct {
        const char *label;
        struct audit_filter filter;
        const char *seqs;
    } rows[] = {
        {"all", {0}, "1 2 3 4 5 6 "},
        {"last", {.limit = 2}, "5 6 "},
        {"a limit above the number of rows", {.limit = 20}, "1 2 3 4 5 6 "},
        {"subject", {.subject = "bob"}, "2 4 "},
        {"subject, last", {.subject = "bob", .limit = 1}, "4 "},
        {"tenant", {.tenant = "globex"}, "5 "},
        {"server", {.server = "git"}, "3 4 "},
        {"server and subject", {.server = "git", .subject = "bob"}, "4 "},
        {"tool", {.name = "push"}, "4 "},
        {"denied", {.denied = true}, "4 6 "},
        {"since", {.since_ms = 1800000003000}, "3 4 5 6 "},
        {"until", {.until_ms = 1800000003000}, "1 2 "},
        {"between", {.since_ms = 1800000002000, .until_ms = 1800000004000}, "2 3 "},
        {"never", {.since_ms = 1900000000000}, ""},
        {"quotes", {.subject = "' OR 1=1 --"}, ""},
    };
    start((struct audit_config){0});
    for (int i = 1; i <= 6; i++) {
        struct audit_record one = record(i == 4 ? "push" : "read");
        one.time_ms = 1800000000000 + i * 1000;
        if (i == 2 || i == 4)
            one.subject = span_of("bob");
        if (i == 3 || i == 4)
            one.server = span_of("git");
        if (i == 5)
            one.tenant = span_of("globex");
        if (i == 4)
            one.decision = AUDIT_DENY;
        if (i == 6)
            one = (struct audit_record){.time_ms = one.time_ms, .event = AUDIT_AUTHENTICATION, .status = AUDIT_DENIED};
        assert_true(audit_put(audit, &one));
    }
    run_until(is_drained());
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct buf got = {0};
        struct audit_row row;
        reader = open_reader(&rows[i].filter);
        while (next(&row))
            buf_printf(&got, "%" PRId64 " ", row.seq);
        assert_false(next(&row));
        assert_span(span_of(buf_text(&got)), span_of(rows[i].seqs), rows[i].label);
        audit_reader_close(reader);
        buf_release(&got);
    }
    struct audit_filter last = {.limit = 1, .subject = "alice"};
    struct audit_row row;
    reader = open_reader(&last);
    assert_true(next(&row));
    assert_int_equal(row.seq, 5);
    assert_false(next(&row));
    put(3);
    run_until(is_drained());
    for (int i = 7; i <= 9; i++) {  // the limit does not apply to rows that are added later
        assert_true(next(&row));
        assert_int_equal(row.seq, i);
    }
    assert_false(next(&row));
    audit_reader_close(reader);
}

// ---- options and speed ----------------------------------------------------------------------

static void audit_options_have_defaults_and_bounds(void **state)
{
    (void)state;
    struct audit_config config = {0};
    struct err err = {0};
    struct option_place place = {.file = "test", .path = ""};
    json_t *tree = json_object();
    assert_true(option_parse(&audit_options, tree, &config, &place, &err));
    assert_null(config.path);
    assert_null(config.jsonl);
    assert_false(config.required);
    assert_int_equal(config.retention_days, 90);
    assert_int_equal(config.retention_size[AUDIT_CHAIN_CALLS], 1 << 30);
    assert_int_equal(config.retention_size[AUDIT_CHAIN_AUTHENTICATION], 128 << 20);
    assert_int_equal(config.retention_size[AUDIT_CHAIN_ADMINISTRATION], 128 << 20);
    assert_int_equal(config.queue, 16384);
    assert_false(config.arguments);
    option_release(&audit_options, &config);
    json_object_set_new(tree, "queue", json_integer(0));
    assert_false(option_parse(&audit_options, tree, &config, &place, &err));
    assert_contains(err.detail, "/queue: must be between 1 and 1000000");
    option_release(&audit_options, &config);
    json_decref(tree);
}

static void the_audit_path_is_read_from_the_environment(void **state)
{
    (void)state;
    static const struct {
        const char *given, *state, *xdg, *want;
    } rows[] = {
        {"/x/a.db", "/state", "/xdg", "/x/a.db"},
        {NULL, "/state", "/xdg", "/state/audit.db"},
        {NULL, "", "/xdg", "/xdg/postern/audit.db"},
        {NULL, "", "", "/home/me/.local/state/postern/audit.db"},
    };
    setenv("HOME", "/home/me", 1);
    for (size_t i = 0; i < COUNT(rows); i++) {
        setenv("POSTERN_STATE", rows[i].state, 1);
        setenv("XDG_STATE_HOME", rows[i].xdg, 1);
        char *found = audit_path(rows[i].given);
        assert_string_equal(found, rows[i].want);
        free(found);
    }
}

static bool has_half_room(void) { return audit_stats(audit).queued < 8192; }

static void measure(bool required)
{
    enum { MANY = 100000 };
    start((struct audit_config){.queue = 16384, .required = required});
    int64_t began = clock_now_us(), putting = 0;
    for (int i = 0; i < MANY; i += 1000) {
        int64_t before = clock_now_us();
        put(1000);
        putting += clock_now_us() - before;
        run_until(has_half_room());
    }
    run_until(is_drained());
    int64_t us = clock_now_us() - began;
    assert_int_equal(audit_stats(audit).dropped, 0);
    stop();
    print_message("%s: %d records in %.2f s, %.0f a second; audit_put takes %.2f us\n",
                  required ? "required" : "not required", MANY, (double)us / 1e6, MANY * 1e6 / (double)us,
                  (double)putting / MANY);
    began = clock_now_us();
    assert_clean(1, MANY);
    print_message("verified in %.2f s\n", (double)(clock_now_us() - began) / 1e6);
    (void)unlink(path);
}

static void rows_are_written_fast_enough(void **state)
{
    (void)state;
    measure(false);
    measure(true);
}

#define AUDIT_TEST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        AUDIT_TEST(a_row_holds_the_record_and_its_canonical_json_is_as_documented),
        AUDIT_TEST(a_row_whose_caller_was_encoded_in_advance_is_the_same),
        AUDIT_TEST(rows_share_equal_members_and_no_others),
        AUDIT_TEST(invalid_texts_are_kept_as_utf8_and_long_ones_truncated),
        AUDIT_TEST(json_lines_equal_the_rows_and_their_file_may_be_rotated),
        AUDIT_TEST(failed_json_lines_are_counted_and_unhealthy_when_required),
        AUDIT_TEST(a_verification_finds_changed_and_removed_rows),
        AUDIT_TEST(a_verification_finds_a_row_that_was_changed_and_rehashed),
        AUDIT_TEST(the_chain_continues_after_a_change_that_stays_visible),
        AUDIT_TEST(the_audit_view_has_the_rows_and_their_members),
        AUDIT_TEST(old_rows_are_deleted_and_the_chain_still_verifies),
        AUDIT_TEST(a_file_of_only_old_rows_keeps_the_row_that_records_the_deletion),
        AUDIT_TEST(the_audit_file_stays_below_its_maximum_size),
        AUDIT_TEST(a_flood_of_one_kind_of_row_does_not_delete_rows_of_another),
        AUDIT_TEST(a_verification_distinguishes_missing_rows_from_deleted_ones),
        AUDIT_TEST(a_full_queue_drops_counts_and_records_the_gap),
        AUDIT_TEST(a_nearly_full_queue_is_unhealthy_when_required),
        AUDIT_TEST(large_records_fill_the_queue_by_their_bytes),
        AUDIT_TEST(queued_rows_are_written_when_the_audit_is_closed),
        AUDIT_TEST(the_gap_record_is_written_when_the_audit_is_closed),
        AUDIT_TEST(a_waiter_is_called_when_the_row_is_in_the_file),
        AUDIT_TEST(a_cancelled_waiter_is_not_called),
        AUDIT_TEST(a_waiter_is_called_when_the_row_cannot_be_written),
        AUDIT_TEST(rows_that_fit_on_a_full_disk_verify_and_a_required_audit_is_unhealthy),
        AUDIT_TEST(rows_queued_while_the_disk_was_full_are_written_later),
        AUDIT_TEST(records_wait_while_no_thread_can_be_started),
        AUDIT_TEST(a_locked_file_delays_the_close_only_briefly),
        AUDIT_TEST(a_damaged_or_foreign_audit_file_is_refused),
        AUDIT_TEST(arguments_are_recorded_only_if_configured_and_redacted),
        AUDIT_TEST(a_killed_writer_leaves_a_chain_that_verifies_and_continues),
        AUDIT_TEST(two_processes_append_to_one_chain),
        AUDIT_TEST(a_reader_follows_while_rows_are_written),
        AUDIT_TEST(audit_filters_select_rows),
        AUDIT_TEST(audit_options_have_defaults_and_bounds),
        AUDIT_TEST(the_audit_path_is_read_from_the_environment),
        AUDIT_TEST(rows_are_written_fast_enough),
    };
    log_setup(LOG_OFF, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
