// Owns the client: its lists, and the tasks that start transfers, continue reading and drive curl.
#include "base/mem.h"
#include "http_state.h"
#include <stdlib.h>

#define OPENED_A_TURN 8  // connections

static void on_more(struct loop_timer *timer)
{
    struct http_client *client = timer->arg;
    struct list now;
    list_move_all(&now, &client->unread);  // connections that are put back wait for the next run
    while (!list_empty(&now)) {
        struct http_connection *connection = list_entry(now.next, struct http_connection, node);
        list_remove(&connection->node);
        http_transfer_read_on(connection);
    }
}

// When many connections are needed, they are opened over several turns: curl needs about 10 KB for each until it is
// open.
static void on_start(struct loop_task *task)
{
    struct http_client *client = task->arg;
    struct list now;
    int opened = 0;
    list_move_all(&now, &client->waiting);
    while (!list_empty(&now)) {
        struct http_transfer *transfer = list_entry(now.next, struct http_transfer, node);
        list_remove(&transfer->node);
        if (opened == OPENED_A_TURN)
            list_append(&client->waiting, &transfer->node);
        else if (http_transfer_go(transfer))
            opened++;
    }
    if (opened == OPENED_A_TURN)
        loop_task_put_later(client->loop, task);
}

static void on_work(struct loop_task *task)
{
    struct http_client *client = task->arg;
    if (client->kick) {
        int running;
        client->kick = false;
        curl_multi_socket_action(client->multi, CURL_SOCKET_TIMEOUT, 0, &running);
        http_connection_settle(client);
    }
    http_connection_close_retired(client);
}

struct http_client *http_client_new(struct loop *loop, struct err *err)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    struct http_client *client = mem_new(struct http_client);
    client->loop = loop;
    client->multi = curl_multi_init();
    if (!client->multi) {
        (void)err_set(err, ERR_SYSTEM, "curl_multi_init failed");
        free(client);
        return NULL;
    }
    client->on_ready = http_transfer_ready;
    client->on_opened = http_transfer_opened;
    client->more = (struct loop_timer){.on_due = on_more, .arg = client, .name = "http client"};
    client->start = (struct loop_task){.run = on_start, .arg = client, .name = "http client"};
    client->work = (struct loop_task){.run = on_work, .arg = client, .name = "http client"};
    list_init(&client->waiting);
    list_init(&client->unread);
    list_init(&client->idle);
    list_init(&client->retired);
    list_init(&client->spare);
    client->room = mem_alloc(HTTP_READ_BYTES);
    http_connection_drive(client);
    return client;
}

// Transfers that ended in this turn are freed before it.
static void client_reap(void *object)
{
    struct http_client *client = object;
    list_each(node, &client->spare)
        http_transfer_free(list_entry(node, struct http_transfer, node));
    free(client);
}

void http_client_free(struct http_client *client)
{
    if (!client)
        return;
    while (!list_empty(&client->idle))  // a target may be freed after its client
        http_connection_retire(list_entry(client->idle.next, struct http_connection, node));
    http_connection_close_retired(client);
    loop_timer_stop(client->loop, &client->timer);
    loop_timer_stop(client->loop, &client->expiry);
    loop_timer_stop(client->loop, &client->more);
    curl_multi_cleanup(client->multi);
    loop_task_drop(&client->start);
    loop_task_drop(&client->work);
    loop_timer_stop(client->loop, &client->timer);
    for (size_t i = 0; i < client->socket_room; i++)
        free(client->sockets[i]);
    free(client->sockets);
    free(client->room);
    loop_reap(client->loop, client, client_reap);
}
