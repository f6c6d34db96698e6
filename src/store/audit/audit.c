// Owns the audit log on the loop's side: the bounded queue, batches on their way to the worker, health and counts.
//
//     audit_put ──► pending ──► writing (a job on the worker: one transaction) ──► gone
//                                  │ failed: kept, tried again after RETRY_MS
//                                  └──────────────────────────────────────────┘
//
// There is one job at a time. A batch has the records put within GATHER_MS; if a call waits for its row (`required`), those
// put while the previous batch was written. The worker uses only `writing`, `db`, `lines` and the results in the job; the
// loop does not touch those while `busy`.
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "db.h"
#include "jsonl.h"
#include "loop/offload.h"
#include "redact.h"
#include "store/state.h"
#include <stdlib.h>

enum {
    GATHER_MS = 50,      // before a batch is written,
    GATHER_ROWS = 4096,  // unless it is as large as this: a transaction costs as much as several rows
    RETRY_MS = 1000,
    TRIM_MS = 10000,   // between checks of the limits
    TRIM_ROWS = 4096,  // and after so many rows
    COMPLAIN_MS = 30000,
    CLOSE_MS = 5000,
    HURRY_MS = 1000,
    LOSS_SHOWN_MS = 60000,  // after the last record that was dropped
};
#define QUEUE_BYTES ((size_t)64 << 20)  // for records of any size

#define DAY_MS 86400000LL

struct result {
    bool wrote;
    bool with_lines, lined;  // there were JSON lines to write, and all were written
    bool more;               // retention is not done yet
    int64_t deleted, last_seq;
    struct err err, line_err, trim_err;
};

struct audit {
    struct loop *loop;
    struct offload *pool;
    struct audit_config config;  // only the numbers are used
    struct audit_db db;
    struct jsonl lines;
    bool with_lines;
    struct redact *redact;  // NULL: arguments are not recorded

    struct audit_batch pending, writing;
    struct list waits_pending, waits_writing;  // struct audit_wait: the calls that wait for each batch
    struct offload_job job;
    struct result result;
    bool busy;     // the worker has the job
    bool closing;  // no more retention
    struct loop_timer gather, retry, look;
    int64_t next_trim_ms, complain_ms;
    size_t rows_since_trim;
    bool trim;  // this job checks the limits

    uint64_t gap;     // records dropped since the last one that was queued
    int64_t lost_ms;  // when the last one was dropped
    bool lines_failing;
    struct audit_stats stats;
};

#define AT(member) offsetof(struct audit_config, member)
static const struct option rows[] = {
    {.name = "path",
     .type = OPTION_STRING,
     .offset = AT(path),
     .help = "The SQLite database, relative to this file. If absent, it is audit.db in `$POSTERN_STATE`, "
             "`$XDG_STATE_HOME/postern` or `~/.local/state/postern`."},
    {.name = "jsonl",
     .type = OPTION_STRING,
     .offset = AT(jsonl),
     .help =
         "Also write the rows as JSON lines to this file, relative to the configuration file (it may be rotated), or "
         "to standard output: `-`."},
    {.name = "required",
     .type = OPTION_BOOL,
     .offset = AT(required),
     .fallback = "false",
     .help = "If true, a call is answered only after its row was written to the database, where the row survives a "
             "crash of the gateway; while rows cannot be written, calls are refused. If false, calls are always "
             "answered, and lost records are counted, logged and recorded as a gap."},
    {.name = "retention_days",
     .type = OPTION_INT,
     .offset = AT(retention_days),
     .fallback = "90",
     .min = 0,
     .max = 36500,
     .help = "Rows that are older than this number of days are deleted; 0: rows are kept forever."},
    {.name = "retention_size",
     .type = OPTION_SIZE,
     .offset = AT(retention_size[AUDIT_CHAIN_CALLS]),
     .fallback = "\"1GiB\"",
     .min = 0,
     .max = 1LL << 50,
     .help = "The oldest rows of calls are deleted when they take more space than this; 0: no limit. The database can "
             "be as large as the sum of the three limits."},
    {.name = "retention_size_authentication",
     .type = OPTION_SIZE,
     .offset = AT(retention_size[AUDIT_CHAIN_AUTHENTICATION]),
     .fallback = "\"128MiB\"",
     .min = 0,
     .max = 1LL << 50,
     .help = "The oldest rows of failed authentications are deleted when they take more space than this. They never "
             "cause other rows to be deleted."},
    {.name = "retention_size_administration",
     .type = OPTION_SIZE,
     .offset = AT(retention_size[AUDIT_CHAIN_ADMINISTRATION]),
     .fallback = "\"128MiB\"",
     .min = 0,
     .max = 1LL << 50,
     .help = "The oldest of all other rows (policies, tokens, connected accounts, gaps) are deleted when they take "
             "more space than this."},
    {.name = "queue",
     .type = OPTION_INT,
     .offset = AT(queue),
     .fallback = "16384",
     .min = 1,
     .max = 1000000,
     .help = "Maximum number of records that wait to be written."},
    {.name = "arguments",
     .type = OPTION_BOOL,
     .offset = AT(arguments),
     .fallback = "false",
     .help = "Also record the arguments of calls, after redaction, up to 64 KiB; otherwise only their SHA-256."},
    {.name = "redact",
     .type = OPTION_OBJECT,
     .offset = AT(redact),
     .sub = &redact_options,
     .help = "Values that are removed from recorded arguments."},
    {0},
};
#undef AT
const struct option_table audit_options = {"Audit (audit)", sizeof(struct audit_config), rows, NULL};

char *audit_path(const char *given) { return state_path(given, "audit.db"); }

// ---- batches --------------------------------------------------------------------------------

static void add(struct audit_batch *batch, const struct audit_record *record)
{
    audit_batch_add(batch, record, record->time_ms ? record->time_ms : clock_wall_ms());
}

static size_t queued(const struct audit *audit) { return audit->pending.count + audit->writing.count; }

static bool has_room(const struct audit *audit)
{
    return queued(audit) < (size_t)audit->config.queue &&
           audit_batch_bytes(&audit->pending) + audit_batch_bytes(&audit->writing) < QUEUE_BYTES;
}

// ---- on the worker --------------------------------------------------------------------------

static void trim_oldest(struct audit *audit, struct buf *lines)
{
    struct result *result = &audit->result;
    size_t most = 2 * audit->writing.count;
    struct audit_db_limits limits = {.rows = most > TRIM_ROWS ? (int64_t)most : TRIM_ROWS};
    memcpy(limits.size, audit->config.retention_size, sizeof limits.size);
    if (audit->config.retention_days)
        limits.before_ms = clock_wall_ms() - audit->config.retention_days * DAY_MS;
    if (audit_db_trim(&audit->db, &limits, lines, &result->deleted, &result->trim_err))
        result->more = result->deleted > 0;
}

static void run(struct offload_job *job)
{
    struct audit *audit = job->arg;
    struct result *result = &audit->result;
    struct buf text = {0}, *lines = audit->with_lines ? &text : NULL;
    result->wrote = audit->writing.count == 0 ||
                    audit_db_write(&audit->db, &audit->writing, lines, &result->last_seq, &result->err);
    if (!result->wrote)
        buf_clear(&text);
    if (audit->trim)  // also if writing failed: deleting rows may free the space
        trim_oldest(audit, lines);
    result->with_lines = text.len > 0;
    result->lined = jsonl_write(&audit->lines, buf_span(&text), &audit->db.hurry, &result->line_err);
    buf_release(&text);
}

// ---- on the loop ----------------------------------------------------------------------------

static void put_gap(struct audit *audit)
{
    if (!audit->gap)
        return;
    log_error("audit records dropped", LOG_INT("audit_dropped", audit->gap), LOG_STR("file", audit->db.db.path));
    add(&audit->pending,
        &(struct audit_record){.event = AUDIT_GAP, .reason = span_of("audit_dropped"), .count = (int64_t)audit->gap});
    audit->gap = 0;
}

// Logs the first failure, and then one every COMPLAIN_MS.
static void complain(struct audit *audit, const char *what, const struct err *err)
{
    int64_t now = clock_now_ms();
    if (now < audit->complain_ms)
        return;
    audit->complain_ms = now + COMPLAIN_MS;
    log_error(what, LOG_STR("problem", err->detail), LOG_INT("queued", queued(audit)),
              LOG_STR("calls", audit->config.required ? "refused" : "answered"));
}

static void end_waits(struct list *waits, bool written)
{
    struct list all;
    list_move_all(&all, waits);
    while (!list_empty(&all)) {
        struct audit_wait *wait = list_entry(all.next, struct audit_wait, node);
        list_remove(&wait->node);
        wait->written = written;
        wait->done(wait);  // `done` may put records and wait again
    }
}

static void note_failed(struct audit *audit)
{
    audit->stats.write_errors++;
    audit->stats.failing = true;
    complain(audit, "cannot write the audit log", &audit->result.err);
    loop_timer_set(audit->loop, &audit->retry, RETRY_MS);
    end_waits(&audit->waits_writing, false);
    end_waits(&audit->waits_pending, false);
}

static bool has_limits(const struct audit_config *config)
{
    bool any = config->retention_days != 0;
    for (size_t i = 0; i < AUDIT_CHAINS; i++)
        any |= config->retention_size[i] != 0;
    return any;
}

static void start_write(struct audit *audit)
{
    if (audit->busy)
        return;
    if (audit->writing.count == 0) {
        struct audit_batch empty = audit->writing;
        audit->writing = audit->pending;
        audit->pending = empty;
        list_move_all(&audit->waits_writing, &audit->waits_pending);
    }
    int64_t now = clock_now_ms();
    audit->trim = !audit->closing && has_limits(&audit->config) &&
                  (audit->result.more || now >= audit->next_trim_ms || audit->rows_since_trim >= TRIM_ROWS);
    if (audit->trim) {
        audit->next_trim_ms = now + TRIM_MS;
        audit->rows_since_trim = 0;
    }
    if (audit->writing.count == 0 && !audit->trim)
        return;
    audit->result = (struct result){0};
    if ((audit->busy = offload_put(audit->pool, &audit->job)))
        return;
    (void)err_set(&audit->result.err, ERR_SYSTEM, "cannot start a thread; check the limits TasksMax and ulimit -u");
    note_failed(audit);
}

static void note_written(struct audit *audit)
{
    struct audit_stats *stats = &audit->stats;
    if (stats->failing)
        log_warn("audit writes resumed", LOG_INT("queued", queued(audit)));
    stats->failing = false;
    stats->written += audit->writing.count;
    if (audit->writing.count)
        stats->last_seq = audit->result.last_seq;
    audit->rows_since_trim += audit->writing.count;
    audit_batch_clear(&audit->writing);
    end_waits(&audit->waits_writing, true);
}

static void note_lines(struct audit *audit)
{
    if (!audit->result.lined) {
        audit->stats.line_errors++;
        complain(audit, "cannot write the JSON lines of the audit log", &audit->result.line_err);
    } else if (audit->lines_failing) {
        log_warn("JSON lines of the audit log resumed", LOG_INT("lost", audit->lines.lost));
        audit->lines.lost = 0;
    }
    audit->lines_failing = !audit->result.lined;
}

static void on_written(struct offload_job *job)
{
    struct audit *audit = job->arg;
    struct result *result = &audit->result;
    audit->busy = false;
    if (result->wrote)
        note_written(audit);
    else
        note_failed(audit);
    if (result->with_lines)
        note_lines(audit);
    audit->stats.deleted += (uint64_t)result->deleted;
    if (result->trim_err.code)
        complain(audit, "cannot delete old audit rows", &result->trim_err);
    if (!audit->stats.failing && !audit->lines_failing)
        audit->complain_ms = 0;
    if (has_room(audit))
        put_gap(audit);
    if (audit->stats.failing)
        return;
    if (result->more && !audit->closing)
        start_write(audit);
    else if (audit->pending.count && (audit->closing || !list_empty(&audit->waits_pending)))
        start_write(audit);
    else if (audit->pending.count)
        loop_timer_set(audit->loop, &audit->gather, audit->pending.count < GATHER_ROWS ? GATHER_MS : 0);
}

static void on_gathered(struct loop_timer *timer)
{
    struct audit *audit = timer->arg;
    if (!audit->stats.failing)
        start_write(audit);
}

static void on_retry(struct loop_timer *timer) { start_write(timer->arg); }

static void on_look(struct loop_timer *timer)
{
    struct audit *audit = timer->arg;
    if (!audit->stats.failing)
        start_write(audit);
    loop_timer_set(audit->loop, timer, TRIM_MS);
}

bool audit_put(struct audit *audit, const struct audit_record *record)
{
    if (!has_room(audit)) {
        if (audit->gap++ == 0)
            log_error("audit queue full, dropping records", LOG_INT("queued", queued(audit)));
        audit->stats.dropped++;
        audit->lost_ms = clock_now_ms();
        return false;
    }
    put_gap(audit);
    add(&audit->pending, record);
    if (!audit->busy && !audit->stats.failing && (!audit->gather.slot || audit->pending.count == GATHER_ROWS))
        loop_timer_set(audit->loop, &audit->gather, audit->pending.count < GATHER_ROWS ? GATHER_MS : 0);
    return true;
}

bool audit_required(const struct audit *audit) { return audit->config.required; }

bool audit_wait(struct audit *audit, struct audit_wait *wait)
{
    if (audit->stats.failing)
        return false;
    if (!audit->busy && list_empty(&audit->waits_pending))
        loop_timer_set(audit->loop, &audit->gather, 0);  // together with other calls that end in this turn
    list_append(&audit->waits_pending, &wait->node);
    return true;
}

bool audit_arguments(const struct audit *audit, struct span arguments, struct buf *out)
{
    if (audit->redact)
        redact_put(audit->redact, arguments, out);
    return audit->redact != NULL;
}

bool audit_healthy(const struct audit *audit)
{
    size_t limit = (size_t)audit->config.queue;
    if (!audit->config.required)
        return true;
    return !audit->stats.failing && !audit->lines_failing && has_room(audit) && queued(audit) < limit - limit / 8;
}

bool audit_losing(const struct audit *audit, int64_t now_ms)
{
    return audit->gap || (audit->stats.dropped && now_ms - audit->lost_ms < LOSS_SHOWN_MS);
}

struct audit_stats audit_stats(const struct audit *audit)
{
    struct audit_stats stats = audit->stats;
    stats.failing = stats.failing || audit->lines_failing;
    stats.queued = queued(audit);
    return stats;
}

// ---- opening and closing --------------------------------------------------------------------

static void release(struct audit *audit)
{
    offload_free(audit->pool);
    if (audit->with_lines)
        jsonl_close(&audit->lines);
    audit_db_close(&audit->db);
    redact_free(audit->redact);
    audit_batch_release(&audit->pending);
    audit_batch_release(&audit->writing);
    free(audit);
}

struct audit *audit_open(struct loop *loop, const struct audit_config *config, struct err *err)
{
    struct audit *audit = mem_new(struct audit);
    audit->loop = loop;
    audit->config = *config;
    audit->config.path = audit->config.jsonl = NULL;
    list_init(&audit->waits_pending);
    list_init(&audit->waits_writing);
    audit->redact = config->arguments ? redact_new(&config->redact) : NULL;
    audit->job = (struct offload_job){.run = run, .done = on_written, .arg = audit};
    audit->gather = (struct loop_timer){.on_due = on_gathered, .arg = audit, .name = "audit"};
    audit->retry = (struct loop_timer){.on_due = on_retry, .arg = audit, .name = "audit"};
    audit->look = (struct loop_timer){.on_due = on_look, .arg = audit, .name = "audit"};
    bool opened = audit_db_open(&audit->db, config, err);
    if (opened && config->jsonl)
        opened = audit->with_lines = jsonl_open(&audit->lines, config->jsonl, err);
    if (!opened || !(audit->pool = offload_new(loop, 1, err))) {
        release(audit);
        return NULL;
    }
    loop_timer_set(loop, &audit->look, 0);
    return audit;
}

void audit_close(struct audit *audit)
{
    if (!audit)
        return;
    audit->closing = true;
    loop_timer_stop(audit->loop, &audit->gather);
    loop_timer_stop(audit->loop, &audit->look);
    start_write(audit);  // one more attempt, also if the last one failed
    if (!offload_wait(audit->pool, CLOSE_MS)) {
        atomic_store(&audit->db.hurry, true);
        sqlite3_interrupt(audit->db.db.sqlite);
        (void)offload_wait(audit->pool, HURRY_MS);
    }
    loop_timer_stop(audit->loop, &audit->retry);
    if (queued(audit) || audit->gap)
        log_error("audit records lost at shutdown", LOG_INT("audit_dropped", queued(audit) + audit->gap));
    if (audit->lines.lost)
        log_error("JSON lines of the audit log lost at shutdown", LOG_INT("lost", audit->lines.lost));
    release(audit);
}

bool audit_write(const struct audit_config *config, const struct audit_record *record, struct err *err)
{
    struct audit_db db = {0};
    struct jsonl out = {0};
    struct audit_batch batch = {0};
    struct buf text = {0};
    int64_t seq;
    bool lined = config->jsonl && strcmp(config->jsonl, "-") != 0;
    add(&batch, record);
    bool ok = audit_db_open(&db, config, err);
    if (ok && audit_db_write(&db, &batch, lined ? &text : NULL, &seq, err)) {
        ok = !lined || (jsonl_open(&out, config->jsonl, err) && jsonl_write(&out, buf_span(&text), &db.hurry, err));
        if (lined)
            jsonl_close(&out);
    } else {
        ok = false;
    }
    audit_db_close(&db);
    audit_batch_release(&batch);
    buf_release(&text);
    return ok;
}
