// A server for the tests of upstream and catalog: a shell loop that answers each request with canned JSON.
//
// Its lists are the environment variables TOOLS, PROMPTS, RESOURCES and TEMPLATES, which are JSON arrays. It has these methods:
//
//   echo      is answered
//   refuse    gets an error
//   silent    gets no answer
//   die       ends the server with status 3
//   hang      is not answered, and the server reads nothing from then on
//   doze      is not answered, and the server ends a moment later, without reading on
//   mutter    hangs, but the server writes to stderr all the time
//   chatter   is answered after PEER_CHATTER notifications
//   farewell  the same, and ends the server
#ifndef PEER_H
#define PEER_H

#include "run_until.h"
#include "upstream/upstream.h"

#define PEER_CHATTER 2000
#define PEER_TEXT_OF(number) #number
#define PEER_TEXT(number) PEER_TEXT_OF(number)

// clang-format off
#define PEER_SCRIPT                                                                                     \
    "while IFS= read -r line; do\n"                                                                     \
    "  id=${line#*'\"id\":'} id=${id%%,*} error=\n"                                                     \
    "  case $line in\n"                                                                                 \
    "  *'\"method\":\"initialize\"'*) result='{\"protocolVersion\":\"2025-11-25\",\"capabilities\":"    \
         "{\"tools\":{},\"prompts\":{},\"resources\":{\"subscribe\":true}},"                            \
         "\"serverInfo\":{\"name\":\"peer\",\"version\":\"1\"},\"instructions\":\"be\\u0020kind\"}';;\n" \
    "  *'\"method\":\"tools/list\"'*) result=\"{\\\"tools\\\":${TOOLS:-[]}}\";;\n"                      \
    "  *'\"method\":\"prompts/list\"'*) result=\"{\\\"prompts\\\":${PROMPTS:-[]}}\";;\n"                \
    "  *'\"method\":\"resources/list\"'*) result=\"{\\\"resources\\\":${RESOURCES:-[]}}\";;\n"          \
    "  *'\"method\":\"resources/templates/list\"'*) result=\"{\\\"resourceTemplates\\\":${TEMPLATES:-[]}}\";;\n" \
    "  *'\"method\":\"echo\"'*) result='{\"n\":1.0}';;\n"                                               \
    "  *'\"method\":\"refuse\"'*) error='{\"code\":-5,\"message\":\"no\"}';;\n"                         \
    "  *'\"method\":\"die\"'*) exit 3;;\n"                                                              \
    "  *'\"method\":\"ping\"'*) result='{}';;\n"                                                        \
    "  *'\"method\":\"hang\"'*) exec sleep 1000;;\n"                                                    \
    "  *'\"method\":\"doze\"'*) sleep 0.3; exit 3;;\n"                                                  \
    "  *'\"method\":\"nap\"'*) sleep 1; result='{}';;\n"                                              \
    "  *'\"method\":\"mutter\"'*) while :; do echo . >&2; sleep 0.05; done;;\n"                         \
    "  *'\"method\":\"chatter\"'* | *'\"method\":\"farewell\"'*) result='{}'\n"                          \
    "    yes '{\"jsonrpc\":\"2.0\",\"method\":\"x\"}' | head -n " PEER_TEXT(PEER_CHATTER) ";;\n"           \
    "  *) continue;;\n"                                                                                 \
    "  esac\n"                                                                                          \
    "  if [ \"$error\" ]; then printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":%s}\\n' \"$id\" \"$error\"\n" \
    "  else printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\\n' \"$id\" \"$result\"; fi\n"        \
    "  case $line in *'\"method\":\"farewell\"'*) exit 0;; esac\n"                                      \
    "done\n"
// clang-format on

static char *peer_args[] = {"-c", PEER_SCRIPT, NULL};

// A stdio server with this name; the test sets `env` and `prefix` as needed.
static inline struct server peer_server(char *name)
{
    return (struct server){.name = name,
                           .type = SERVER_STDIO,
                           .command = "sh",
                           .args = peer_args,
                           .timeout_ms = 20000,
                           .max_timeout_ms = 40000,
                           .start_timeout_ms = 20000};
}

// A function of a listener for tests that do not need it.
static inline void peer_ignored(void *arg, struct upstream *upstream, const struct message *message,
                                struct upstream_request *origin)
{
    (void)arg;
    (void)upstream;
    (void)message;
    (void)origin;
}

static inline struct upstream *peer_upstream(struct loop *loop, struct server *server,
                                             const struct upstream_listener *listener, void *arg)
{
    return upstream_new(&(struct upstream_spec){.loop = loop,
                                                .server = server,
                                                .capabilities = "{}",
                                                .max_message = 1 << 20,
                                                .listener = listener,
                                                .arg = arg});
}

// The server may answer before its process id has arrived.
static inline long peer_wait_pid(struct loop *loop, const struct upstream *upstream)
{
    run_loop_until(loop, upstream_pid(upstream));
    return upstream_pid(upstream);
}

#endif
