// The catalogue cache: the lists of servers and their answers to initialize, in a file, so that a gateway that has just started can
// answer without starting them.
//
// An entry is a JSON object. It belongs to a tenant, a server and a user (or is shared), and to one configuration of the
// server: under another configuration it is not found. The file holds users and configurations only as HMACs, because a
// configuration contains secrets. Entries of a user are sealed.
//
// Losing it costs only time: a damaged entry is deleted with a line in the log, and without a usable file servers are started to be
// listed. Work on the file runs on a worker, in the order in which it was started.
#ifndef STORE_CATALOGUE_H
#define STORE_CATALOGUE_H

#include "base/buf.h"
#include "base/err.h"
#include "base/option.h"
#include "base/span.h"
#include "loop/loop.h"

enum {
    CATALOGUE_KEY_BYTES = 32,
    CATALOGUE_ENTRY_MAX = 16 << 20,
};

struct catalogue_config {
    char *path;         // NULL: catalogue.db in the state folder; "": no cache
    int64_t fresh_ms;   // a younger entry is not refreshed in the background
    int64_t total_max;  // no option: bytes of all entries, for tests; 0: the default
    int64_t
        unused_max;  // no option: milliseconds after which an entry that was not used is dropped, for tests; 0: the default
};

extern const struct option_table catalogue_options;  // of struct catalogue_config

struct catalogue;

// How the entries of a user are sealed; `name` is bound to the entry. Both run on the worker and may use nothing but `key`.
struct catalogue_sealing {
    bool (*seal)(const unsigned char *key, struct span name, struct span plain, struct buf *out);
    bool (*unseal)(const unsigned char *key, struct span name, struct span sealed, struct buf *out);
    unsigned char key[CATALOGUE_KEY_BYTES];
};

struct catalogue_name {
    const char *tenant, *server;
    const char *user;                         // NULL: the entry is shared
    struct span configuration;                // of the server: all bytes that must be the same again
    const struct catalogue_sealing *sealing;  // for a user
};

// Stored with an entry.
struct catalogue_facts {
    int64_t login;        // the login of the user that the lists were fetched with; 0: none
    int64_t interval_ms;  // between requests to the server; 0: not known
};

// A lookup under way. Embed it zeroed, fill done and arg.
struct catalogue_find {
    void (*done)(
        struct catalogue_find *find);  // once, on the loop, never inside catalogue_find_start(), and only after true
    void *arg;
    struct buf text;  // of the entry, valid JSON; empty: not found. The lookup owns it until catalogue_find_cancel()
    int64_t age_ms;
    struct catalogue_facts facts;
    struct catalogue_work *work;  // the catalogue's own; NULL: not under way
};

// Opens the file, or makes it; a damaged one is replaced. This blocks: it is for the start.
struct catalogue *catalogue_open(struct loop *loop, const struct catalogue_config *config, struct err *err) MUST_CHECK;
// Finishes the work that was started. To be called before loop_free().
void catalogue_close(struct catalogue *catalogue);

// False: too much work is waiting, or no thread can be started.
bool catalogue_find_start(struct catalogue *catalogue, const struct catalogue_name *name,
                          struct catalogue_find *find) MUST_CHECK;
void catalogue_find_cancel(struct catalogue_find *find);  // done will not be called; releases the text
// Stores an entry, or replaces it. Takes over the text, a JSON object; one of more than CATALOGUE_ENTRY_MAX bytes is not stored.
// False: too much work is waiting.
bool catalogue_put(struct catalogue *catalogue, const struct catalogue_name *name, const struct catalogue_facts *facts,
                   struct buf *text) MUST_CHECK;
// Deletes the entries of a user, under all configurations; at all servers of the tenant if `server` is NULL.
void catalogue_forget_user(struct catalogue *catalogue, const char *tenant, const char *server, const char *user);
// Deletes the entries of a server with this configuration, of all users.
void catalogue_forget_server(struct catalogue *catalogue, const struct catalogue_name *name);

#endif
