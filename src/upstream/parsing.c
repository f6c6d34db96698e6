// Owns the parsing of large messages from servers by a worker thread, while the loop continues.
//
// The worker also replaces raw line ends, which are white space in valid JSON, by spaces, so that the faces need not do it.
#include "parsing.h"
#include "base/mem.h"
#include "base/scan.h"
#include "mcp/salvage.h"
#include <stdlib.h>

#define BATCH_MAX 1024  // messages, all of which are delivered in one turn of the loop

static void parsing_free(struct parsing *parsing)
{
    blob_unref(parsing->owner);
    free(parsing->messages);
    free(parsing);
}

static bool parse_batch(struct parsing *parsing)
{
    struct span array, part;
    struct err unread;
    if (!scan_document(parsing->text, false, &array, &parsing->err)) {
        salvage_find(span_after(parsing->text, 1), parsing->messages);
        return false;
    }
    struct scan_walk count = scan_walk(array), walk = count;
    size_t room = 0;
    while (room <= BATCH_MAX && scan_element(&count, &part))
        room++;
    if (room > BATCH_MAX)
        return err_set(&parsing->err, ERR_INVALID_REQUEST, "a large batch has more than %d messages", BATCH_MAX);
    parsing->messages = mem_resize(parsing->messages, (room + 1) * sizeof *parsing->messages);
    while (scan_element(&walk, &part))
        if (!salvage_parse(part, &parsing->messages[parsing->count++], &unread))
            continue;  // it is MESSAGE_INVALID, which is reported when it is delivered
    return true;
}

static bool parse(struct parsing *parsing)
{
    parsing->messages = mem_new(struct message);
    if (parsing->text.at[0] == '[')
        return parse_batch(parsing);
    parsing->count = 1;
    return salvage_parse(parsing->text, parsing->messages, &parsing->err);
}

static void run(struct offload_job *job)
{
    struct parsing *parsing = job->arg;
    parsing->valid = parse(parsing);
    if (parsing->valid)
        message_flatten((char *)(uintptr_t)parsing->text.at, parsing->text.len);  // no other reference exists yet
}

static void done(struct offload_job *job)
{
    struct parsing *parsing = job->arg;
    if (parsing->on_parsed)
        parsing->on_parsed(parsing->arg, parsing);
    parsing_free(parsing);
}

static void run_unaided(struct loop_task *task)
{
    struct parsing *parsing = task->arg;
    run(&parsing->job);
    done(&parsing->job);
}

struct parsing *parsing_start(struct upstream *upstream, struct blob *owner, struct span text,
                              void (*on_parsed)(void *arg, struct parsing *parsing), void *arg)
{
    struct parsing *parsing = mem_new(struct parsing);
    parsing->job = (struct offload_job){.run = run, .done = done, .arg = parsing};
    parsing->unaided = (struct loop_task){.run = run_unaided, .arg = parsing, .name = "read a large message"};
    parsing->owner = owner;
    parsing->text = span_without_bom(text);
    parsing->on_parsed = on_parsed;
    parsing->arg = arg;
    if (!upstream->spec.background || !offload_put(upstream->spec.background, &parsing->job))
        loop_task_put(upstream->spec.loop, &parsing->unaided);
    return parsing;
}

void parsing_drop(struct parsing *parsing)
{
    if (!parsing)
        return;
    parsing->on_parsed = NULL;
    if (!list_linked(&parsing->unaided.node))  // a worker has it
        return;
    loop_task_drop(&parsing->unaided);
    parsing_free(parsing);
}
