// Owns the stdio face: framing on standard input, one session, its stream on standard output.
#include "front/stdio.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/scan.h"
#include "config/chains.h"
#include "config/front.h"
#include "mcp/frame.h"
#include "mcp/message.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_SIZE ((size_t)64 << 10)
#define COUNTED_MAX 10000

struct stdio_face {
    struct loop *loop;
    struct gate *gate;
    struct loop_watch in, out;
    struct loop_task read_more;  // for input from a file, which epoll refuses
    struct loop_task flush;
    struct loop_task close;  // a sink must not end a session while it is being pushed to
    struct frame frame;
    struct map counted;  // ids of requests that came with Content-Length: their answers are framed likewise
    struct arrival opening;
    struct buf authorization;  // from $POSTERN_TOKEN
    const char *profile;       // may be NULL
    int refused;               // the HTTP status with which the session was refused
    char session_id[64];
    struct stream *stream;
    struct buf pending;
    size_t sent;
    struct blob *large;  // a message in parts that follows `pending`; may be NULL
    struct blob_reader rest;
    struct buf behind;          // follows `large`
    bool file, ended, waiting;  // waiting: the caller is not authenticated yet
    void (*on_end)(void *arg);
    void (*on_refused)(void *arg, const struct err *err);
    void *arg;
};

// ---- writing --------------------------------------------------------------------------------

// An answer is framed as its request was; any other message, as the last message that came.
static bool is_answer_counted(struct stdio_face *face, struct span id)
{
    return map_remove(&face->counted, id) != NULL;
}

static bool is_counted(struct stdio_face *face, struct span message)
{
    struct span id, outcome;
    bool answer = scan_find(message, "result", &outcome) || scan_find(message, "error", &outcome);
    if (!answer || !scan_find(message, "id", &id))
        return face->frame.content_length;
    return is_answer_counted(face, id);
}

static void note_framing(struct stdio_face *face, struct span message)
{
    struct span id;
    if (face->frame.content_length && scan_find(message, "id", &id) && face->counted.count < COUNTED_MAX)
        map_put(&face->counted, id, face);
}

static void put_message(struct stdio_face *face, struct span message)
{
    struct buf *out = face->large ? &face->behind : &face->pending;
    bool counted = is_counted(face, message);
    if (counted)
        buf_printf(out, "Content-Length: %zu\r\n\r\n", message.len);
    size_t start = out->len;
    buf_put_span(out, message);
    if (!counted) {
        message_flatten(out->at + start, message.len);
        buf_put_char(out, '\n');
    }
    loop_task_put(face->loop, &face->flush);
}

// An answer has its id in its first part. The id may follow the whole result there, so it is looked for only if a
// request came with Content-Length.
static void put_large(struct stdio_face *face, struct blob *message)
{
    struct span id;
    if (face->counted.count && scan_find(blob_part(message, 0), "id", &id) && is_answer_counted(face, id))
        buf_printf(&face->pending, "Content-Length: %zu\r\n\r\n", message->len);
    else
        buf_put_char(&face->behind, '\n');
    face->large = blob_ref(message);
    face->rest = (struct blob_reader){.blob = message};
}

// The bytes to write next; empty at the end.
static struct span next_bytes(struct stdio_face *face)
{
    struct stream_item item;
    for (;;) {
        if (face->sent < face->pending.len)
            return span_after(buf_span(&face->pending), face->sent);
        if (face->large && blob_rest(&face->rest).len)
            return blob_rest(&face->rest);
        face->sent = 0;
        buf_clear(&face->pending);
        if (face->large) {
            blob_unref(face->large);
            face->large = NULL;
            buf_put_span(&face->pending, buf_span(&face->behind));
            buf_clear(&face->behind);
        } else if (!face->stream || !stream_pull(face->stream, &item)) {
            return (struct span){0};
        } else if (!item.message->at) {
            put_large(face, item.message);
        } else {
            put_message(face, blob_span(item.message));
        }
    }
}

static void went_out(struct stdio_face *face, size_t len)
{
    if (face->sent < face->pending.len)
        face->sent += len;
    else
        blob_skip(&face->rest, len);
}

static void flush(struct stdio_face *face)
{
    struct err err;
    for (struct span bytes; (bytes = next_bytes(face)).len;) {
        ssize_t put = write(STDOUT_FILENO, bytes.at, bytes.len);
        if (put >= 0) {
            went_out(face, (size_t)put);
        } else if (errno == EAGAIN) {
            if (!loop_watch(face->loop, &face->out, LOOP_WRITE, &err))
                log_error("cannot watch standard output", LOG_STR("detail", err.detail));
            return;
        } else if (errno != EINTR) {
            went_out(face, bytes.len);  // the reader has closed the output; the input will end, too
            break;
        }
    }
    loop_unwatch(face->loop, &face->out);
    loop_task_drop(&face->flush);
}

static void on_flush(struct loop_task *task) { flush(task->arg); }

static void on_writable(struct loop_watch *watch, unsigned events)
{
    (void)events;
    flush(watch->arg);
}

static void on_wake(void *arg)
{
    struct stdio_face *face = arg;
    loop_task_put(face->loop, &face->flush);
}

static void end(struct stdio_face *face)
{
    if (face->ended)
        return;
    face->ended = true;
    loop_unwatch(face->loop, &face->in);
    loop_task_drop(&face->read_more);
    face->on_end(face->arg);
}

static void on_close(struct loop_task *task) { end(task->arg); }

static void on_cut(void *arg)
{
    struct stdio_face *face = arg;
    log_warn("the caller does not read standard output");
    loop_task_put(face->loop, &face->close);
}

// ---- arrivals -------------------------------------------------------------------------------

static bool not_let_in(const struct stdio_face *face, struct err *err)
{
    if (face->refused == err_http_status(ERR_NO_PROFILE))
        return err_set(err, ERR_CONFIG, "--profile %s: the profile does not exist in this caller's tenant",
                       face->profile);
    if (face->refused == err_http_status(ERR_AUTH_UNAVAILABLE))
        return err_set(err, ERR_AUTH_UNAVAILABLE,
                       "caller on standard input refused: authentication is not possible now; check that the issuer of "
                       "POSTERN_TOKEN can be reached");
    return err_set(err, ERR_UNAUTHENTICATED,
                   "caller on standard input refused: set POSTERN_TOKEN to a token of this gateway");
}

static void arrival_free(struct arrival *arrival)
{
    identity_unref(arrival->who);
    free(arrival);
}

static void on_answer(struct arrival *arrival, struct answer *answer)
{
    struct stdio_face *face = arrival->arg;
    struct err err;
    if (answer->body.len)
        put_message(face, buf_span(&answer->body));
    buf_release(&answer->body);
    blob_unref(answer->large);  // always NULL: large answers go to the stream
    if (arrival != &face->opening) {
        arrival_free(arrival);
        return;
    }
    face->refused = answer->status;
    if (face->waiting && !not_let_in(face, &err))
        face->on_refused(face->arg, &err);
}

static bool begin_reading(struct stdio_face *face, struct err *err)
{
    struct stat info;
    face->file = fstat(STDIN_FILENO, &info) == 0 && S_ISREG(info.st_mode);
    if (!face->file)
        return loop_watch(face->loop, &face->in, LOOP_READ, err);
    loop_task_put(face->loop, &face->read_more);
    return true;
}

static void on_stream(struct arrival *arrival, struct stream *stream, const char *session_id)
{
    struct stdio_face *face = arrival->arg;
    struct stream_sink sink = {on_wake, on_cut, face};
    snprintf(face->session_id, sizeof face->session_id, "%s", session_id ? session_id : "");
    struct err err;
    face->stream = stream_ref(stream);
    stream_attach(stream, &sink);
    if (face->waiting && !begin_reading(face, &err))
        face->on_refused(face->arg, &err);
}

static const struct arrival_ops arrival_ops = {on_answer, on_stream};

// The process that started the gateway is local; its token, if it set one, authenticates it.
static struct credentials credentials_of(const struct stdio_face *face)
{
    struct credentials credentials = {.chain = config_chains_of(gate_chains(face->gate), gate_config(face->gate), NULL),
                                      .local = true};
    if (face->authorization.len)
        credentials.authorization = buf_span(&face->authorization);
    return credentials;
}

static void refuse_message(struct stdio_face *face, struct span text, const struct err *err, int64_t retry_ms)
{
    struct buf error = {0}, members = {0};
    struct span id = {0}, method;
    bool request = scan_find(text, "method", &method) && scan_find(text, "id", &id);
    if (retry_ms)
        buf_printf(&members, "\"retryAfterMs\":%lld", (long long)retry_ms);
    log_warn("message on standard input refused", LOG_STR("reason", err_reason(err->code)),
             LOG_STR("detail", err->detail));
    message_put_error(&error, id, err->code, buf_span(&members));
    if (request)
        put_message(face, buf_span(&error));
    buf_release(&error);
    buf_release(&members);
}

static void take_message(struct stdio_face *face, struct span text)
{
    struct arrival *arrival = mem_new(struct arrival);
    *arrival = (struct arrival){.op = ARRIVAL_MESSAGE,
                                .credentials = credentials_of(face),
                                .session_id = span_of(face->session_id),
                                .profile = span_of(face->profile),
                                .pipe = true,
                                .ops = &arrival_ops,
                                .arg = face};
    struct err err;
    int64_t retry_ms;
    if (!gate_hold(face->gate, arrival, text.len, &retry_ms, &err)) {
        refuse_message(face, text, &err, retry_ms);
        arrival_free(arrival);
        return;
    }
    buf_put_span(&arrival->body, text);
    note_framing(face, text);
    gate_arrive(face->gate, arrival);
}

static void take_frames(struct stdio_face *face)
{
    struct span text;
    enum frame_status status;
    while (!face->ended && (status = frame_next(&face->frame, &text)) != FRAME_MORE) {
        struct buf error = {0};
        if (status == FRAME_MESSAGE) {
            take_message(face, text);
            continue;
        }
        enum err_code code = status == FRAME_JUNK        ? ERR_PARSE
                             : status == FRAME_NO_MEMORY ? ERR_TOO_MANY
                                                         : ERR_TOO_LARGE;
        message_put_error(&error, (struct span){0}, code, (struct span){0});
        put_message(face, buf_span(&error));
        buf_release(&error);
    }
}

static void read_input(struct stdio_face *face)
{
    size_t room;
    char *at = frame_room(&face->frame, READ_SIZE, &room);
    ssize_t got = read(STDIN_FILENO, at, room);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        end(face);
        return;
    }
    frame_fed(&face->frame, (size_t)got);
    take_frames(face);
    if (face->file && !face->ended)
        loop_task_put(face->loop, &face->read_more);
}

static void on_readable(struct loop_watch *watch, unsigned events)
{
    (void)events;
    read_input(watch->arg);
}

static void on_read_more(struct loop_task *task) { read_input(task->arg); }

// ---- life -----------------------------------------------------------------------------------

static void make_non_blocking(int fd)
{
    struct stat info;
    if (fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)))
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

struct stdio_face *stdio_face_new(struct loop *loop, struct gate *gate, const struct stdio_spec *spec, struct err *err)
{
    struct stdio_face *face = mem_new(struct stdio_face);
    face->loop = loop;
    face->gate = gate;
    face->profile = spec->profile;
    face->on_end = spec->on_end;
    face->on_refused = spec->on_refused;
    face->arg = spec->arg;
    face->in = (struct loop_watch){.fd = STDIN_FILENO, .on_ready = on_readable, .arg = face, .name = "stdin"};
    face->out = (struct loop_watch){.fd = STDOUT_FILENO, .on_ready = on_writable, .arg = face, .name = "stdout"};
    face->read_more = (struct loop_task){.run = on_read_more, .arg = face, .name = "stdin"};
    face->flush = (struct loop_task){.run = on_flush, .arg = face, .name = "stdout"};
    face->close = (struct loop_task){.run = on_close, .arg = face, .name = "stdio face"};
    frame_init(&face->frame, (size_t)config_front(gate_config(gate)).limits->max_body);
    const char *token = getenv("POSTERN_TOKEN");
    if (token && *token)
        buf_printf(&face->authorization, "Bearer %s", token);
    make_non_blocking(STDIN_FILENO);
    make_non_blocking(STDOUT_FILENO);
    face->opening = (struct arrival){.op = ARRIVAL_PIPE,
                                     .credentials = credentials_of(face),
                                     .profile = span_of(face->profile),
                                     .pipe = true,
                                     .ops = &arrival_ops,
                                     .arg = face};
    gate_arrive(gate, &face->opening);
    face->waiting = !face->stream && !face->refused;
    if (face->waiting || (face->refused ? not_let_in(face, err) : begin_reading(face, err)))
        return face;
    stdio_face_free(face);
    return NULL;
}

// Writes the last answers, even to a slow reader, until the time for the shutdown is over.
static void flush_fully(struct stdio_face *face)
{
    int64_t until = clock_now_ms() + config_front(gate_config(face->gate)).timeouts->shutdown_ms;
    struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
    flush(face);
    while (next_bytes(face).len && clock_now_ms() < until && poll(&out, 1, 100) >= 0)
        flush(face);
}

void stdio_face_close(struct stdio_face *face) { gate_pipe_drain(face->gate, span_of(face->session_id)); }

void stdio_face_free(struct stdio_face *face)
{
    if (!face)
        return;
    flush_fully(face);
    gate_gone(face->gate, &face->opening);
    identity_unref(face->opening.who);
    loop_task_drop(&face->close);
    loop_unwatch(face->loop, &face->in);
    loop_unwatch(face->loop, &face->out);
    loop_task_drop(&face->flush);
    loop_task_drop(&face->read_more);
    if (face->stream) {
        stream_detach(face->stream, face);
        stream_unref(face->stream);
    }
    frame_release(&face->frame);
    map_release(&face->counted);
    buf_wipe(&face->authorization);
    buf_release(&face->pending);
    blob_unref(face->large);
    buf_release(&face->behind);
    free(face);
}
