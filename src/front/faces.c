// Owns the set of HTTP faces: opening them, and changing them in the two steps of a reload.
//
// A face is known by its address, and by how many listeners with the same address come before it (port 0 may be listed several
// times). Prepare and commit happen in one turn of the loop, so a prepared face has not accepted anything if it is dropped.
#include "front/faces.h"
#include "base/log.h"
#include "base/mem.h"
#include "face.h"
#include "loop/notify.h"
#include <stdlib.h>

#define LEAVING_MS 250

struct faces_entry {
    struct http_face *face;
    struct http_face *predecessor;    // of a prepared face that takes over its socket; NULL: it opens its own
    struct config_listener listener;  // the settings it was opened with; the strings belong to `config`
    const struct config *config;
};

struct faces_set {
    struct faces_entry *at;
    size_t count;
};

struct faces {
    struct loop *loop;
    struct gate *gate;
    const char *only;  // the only listener; NULL: the listeners of the configuration
    bool by_default;
    struct inherited *inherited;
    struct faces_set now, next;
    struct faces_entry *leaving;
    size_t leaving_count;
    int64_t leave_by_ms;
    struct loop_timer sweep;
};

// ---- the listeners of a configuration -------------------------------------------------------

static size_t list_listeners(const struct faces *faces, const struct config *config, struct config_listener **listeners)
{
    static char address[] = "127.0.0.1:8080";
    const struct option_items *items = config_front_listeners(config);
    *listeners = mem_alloc((items->count + 1) * sizeof **listeners);
    if (faces->only) {
        const struct config_listener *same = config_listener_find(config, faces->only);
        **listeners = same ? *same : (struct config_listener){.address = (char *)(uintptr_t)faces->only};
        return 1;
    }
    if (items->count)
        memcpy(*listeners, items->at, items->count * sizeof **listeners);
    else if (faces->by_default)
        **listeners = (struct config_listener){.address = address};
    return items->count ? items->count : faces->by_default;
}

// The face that serves the same address now; each face is found once.
static struct faces_entry *find_predecessor(const struct faces *faces, const struct config_listener *listeners,
                                            size_t i)
{
    size_t before = 0;
    for (size_t k = 0; k < i; k++)
        before += strcmp(listeners[k].address, listeners[i].address) == 0;
    for (size_t k = 0; k < faces->now.count; k++)
        if (strcmp(faces->now.at[k].listener.address, listeners[i].address) == 0 && before-- == 0)
            return &faces->now.at[k];
    return NULL;
}

static bool texts_equal(const char *one, const char *other)
{
    return one && other ? strcmp(one, other) == 0 : one == other;
}

// Providers are not compared: they follow the configuration in force, without opening the listener again.
static bool opens_alike(const struct config_listener *one, const struct config_listener *other)
{
    return texts_equal(one->mode, other->mode) && texts_equal(one->tls.certificate, other->tls.certificate) &&
           texts_equal(one->tls.key, other->tls.key) && texts_equal(one->tls.client_ca, other->tls.client_ca);
}

// ---- prepare, commit ------------------------------------------------------------------------

static void set_release(struct faces_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        config_unref(set->at[i].config);
    free(set->at);
    *set = (struct faces_set){0};
}

static bool is_kept(const struct faces *faces, const struct http_face *face)
{
    for (size_t i = 0; i < faces->now.count; i++)
        if (faces->now.at[i].face == face)
            return true;
    return false;
}

void faces_drop(struct faces *faces)
{
    for (size_t i = 0; i < faces->next.count; i++)
        if (!is_kept(faces, faces->next.at[i].face))
            http_face_free(faces->next.at[i].face);
    set_release(&faces->next);
}

bool faces_prepare(struct faces *faces, const struct config *next, struct err *err)
{
    struct config_listener *listeners;
    size_t count = list_listeners(faces, next, &listeners);
    bool ok = true;
    faces->next.at = mem_alloc((count + 1) * sizeof *faces->next.at);
    for (size_t i = 0; ok && i < count; i++) {
        struct faces_entry *entry = &faces->next.at[i], *old = find_predecessor(faces, listeners, i);
        bool same = old && opens_alike(&old->listener, &listeners[i]);
        entry->listener = listeners[i];
        entry->predecessor = old && !same ? old->face : NULL;
        entry->face = same ? old->face
                           : http_face_new(&(struct http_face_spec){.loop = faces->loop,
                                                                    .gate = faces->gate,
                                                                    .config = next,
                                                                    .listener = &listeners[i],
                                                                    .predecessor = entry->predecessor,
                                                                    .inherited = faces->inherited},
                                           err);
        if ((ok = entry->face != NULL)) {
            entry->config = config_ref(next);
            faces->next.count++;
        }
    }
    free(listeners);
    if (!ok)
        faces_drop(faces);
    return ok;
}

static bool is_over(const struct faces *faces, const struct http_face *face)
{
    return face->caller_count == 0 || loop_now(faces->loop) >= faces->leave_by_ms;
}

static void on_sweep(struct loop_timer *timer)
{
    struct faces *faces = timer->arg;
    size_t left = 0;
    for (size_t i = 0; i < faces->leaving_count; i++) {
        struct faces_entry *entry = &faces->leaving[i];
        if (is_over(faces, entry->face)) {
            http_face_free(entry->face);
            config_unref(entry->config);
        } else {
            faces->leaving[left++] = *entry;
        }
    }
    faces->leaving_count = left;
    if (left)
        loop_timer_set(faces->loop, timer, LEAVING_MS);
}

static void leave(struct faces *faces, struct faces_entry *entry)
{
    log_info("no longer listening", LOG_STR("url", entry->face->listener.url));
    notify_forget(entry->face->listener.fd);
    http_face_quiesce(entry->face);
    faces->leaving = mem_resize(faces->leaving, (faces->leaving_count + 1) * sizeof *faces->leaving);
    faces->leaving[faces->leaving_count++] = *entry;
    entry->config = NULL;
    faces->leave_by_ms = loop_now(faces->loop) + entry->face->config.timeouts->shutdown_ms;
    loop_timer_set(faces->loop, &faces->sweep, 0);
}

void faces_commit(struct faces *faces)
{
    struct faces_set old = faces->now;
    faces->now = faces->next;
    faces->next = (struct faces_set){0};
    for (size_t i = 0; i < faces->now.count; i++) {
        struct faces_entry *entry = &faces->now.at[i];
        http_face_configure(entry->face, &entry->listener, entry->predecessor);
        entry->predecessor = NULL;
    }
    for (size_t i = 0; i < old.count; i++)
        if (!is_kept(faces, old.at[i].face))
            leave(faces, &old.at[i]);
    set_release(&old);
}

// ---- all of them ----------------------------------------------------------------------------

struct faces *faces_new(struct loop *loop, struct gate *gate, const char *address, bool by_default,
                        struct inherited *inherited)
{
    struct faces *faces = mem_new(struct faces);
    *faces =
        (struct faces){.loop = loop, .gate = gate, .only = address, .by_default = by_default, .inherited = inherited};
    faces->sweep = (struct loop_timer){.on_due = on_sweep, .arg = faces, .name = "closing listeners"};
    return faces;
}

void faces_own_files(struct faces *faces)
{
    for (size_t i = 0; i < faces->now.count; i++)
        listener_own_file(&faces->now.at[i].face->listener, &faces->now.at[i].listener);
}

void faces_leave_files(struct faces *faces)
{
    for (size_t i = 0; i < faces->now.count; i++)
        unix_socket_leave(&faces->now.at[i].face->listener.file);
}

size_t faces_sockets(const struct faces *faces, int *fds, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < faces->now.count; i++) {
        int fd = faces->now.at[i].face->listener.fd;
        if (fd >= 0 && count++ < size)
            fds[count - 1] = fd;
    }
    return count;
}

size_t faces_count(const struct faces *faces) { return faces->now.count; }
const char *faces_url(const struct faces *faces, size_t i) { return faces->now.at[i].face->listener.url; }

void faces_poll(struct faces *faces)
{
    for (size_t i = 0; i < faces->now.count; i++)
        http_face_poll(faces->now.at[i].face);
}

void faces_reload(struct faces *faces)
{
    for (size_t i = 0; i < faces->now.count; i++)
        http_face_reload(faces->now.at[i].face);
}

bool faces_failing(const struct faces *faces)
{
    for (size_t i = 0; i < faces->now.count; i++)
        if (http_face_failing(faces->now.at[i].face))
            return true;
    return false;
}

void faces_quiesce(struct faces *faces)
{
    for (size_t i = 0; i < faces->now.count; i++)
        http_face_quiesce(faces->now.at[i].face);
}

bool faces_connected(const struct faces *faces)
{
    size_t count = 0;
    for (size_t i = 0; i < faces->now.count; i++)
        count += faces->now.at[i].face->caller_count;
    for (size_t i = 0; i < faces->leaving_count; i++)
        count += faces->leaving[i].face->caller_count;
    return count > 0;
}

bool faces_busy(const struct faces *faces)
{
    for (size_t i = 0; i < faces->now.count; i++)
        if (http_face_busy(faces->now.at[i].face))
            return true;
    for (size_t i = 0; i < faces->leaving_count; i++)
        if (http_face_busy(faces->leaving[i].face))
            return true;
    return false;
}

void faces_free(struct faces *faces)
{
    if (!faces)
        return;
    loop_timer_stop(faces->loop, &faces->sweep);
    faces_drop(faces);
    for (size_t i = 0; i < faces->now.count; i++)
        http_face_free(faces->now.at[i].face);
    for (size_t i = 0; i < faces->leaving_count; i++) {
        http_face_free(faces->leaving[i].face);
        config_unref(faces->leaving[i].config);
    }
    set_release(&faces->now);
    free(faces->leaving);
    free(faces);
}
