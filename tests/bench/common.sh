# Shared by run, soak and selftest: the temporary folder, child processes, and starting servers and gateways.
# Sourced from the repository's root; the caller sets $me and $build (a CMake build folder).
# shellcheck shell=bash

tmp=$(mktemp -d "${TMPDIR:-/tmp}/postern-bench.XXXXXX")
pids=()

die() {
    printf '%s: %s\n' "$me" "$*" >&2
    exit 2
}

stop_pid() { # PID: TERM, and KILL after five seconds
    kill -TERM "$1" 2>/dev/null || return 0
    for _ in {1..100}; do
        kill -0 "$1" 2>/dev/null || break
        sleep 0.05
    done
    kill -KILL "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}

stop_all() {
    local i
    for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
        stop_pid "${pids[i]}"
    done
    pids=()
    rm -rf "$tmp"
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# Chooses two of the cores that this process may use: one for load and upstreams, one for the measured program.
choose_cores() {
    local list range cores=()
    list=$(taskset -pc $$) || die "taskset is missing (Debian: util-linux)"
    for range in $(tr ',' ' ' <<<"${list##*: }"); do
        mapfile -t -O ${#cores[@]} cores < <(seq "${range%-*}" "${range#*-}")
    done
    load_core=${cores[0]}
    middle_core=${cores[1]:-${cores[0]}}
    [ ${#cores[@]} -gt 1 ] || echo "$me: only one core; the figures are not reliable" >&2
}

wait_line() { # FILE PATTERN PID: the first match of sed PATTERN's group in FILE, within 30 seconds
    local found
    for _ in {1..600}; do
        found=$(sed -n "s|$2|\\1|p" "$1" 2>/dev/null | head -n 1)
        [ -z "$found" ] || { printf '%s\n' "$found"; return 0; }
        kill -0 "$3" 2>/dev/null || break
        sleep 0.05
    done
    return 1
}

# NAME CORE [http|sse] ARGS...: starts an HTTP upstream; sets $started (its pid) and $url.
start_upstream() {
    local name=$1 core=$2 kind=http
    shift 2
    case ${1:-} in
    http | sse)
        kind=$1
        shift
        ;;
    esac
    taskset -c "$core" "$build/bench/bench_upstream" $kind 0 "$@" >"$tmp/$name.out" 2>&1 </dev/null &
    started=$!
    pids+=("$started")
    url=$(wait_line "$tmp/$name.out" '^\(http:.*\)$' "$started") || die "the upstream $name did not start"
}

# NAME CONFIG COMMAND...: starts the gateway with that configuration text; sets $started and $url.
start_gateway() {
    local name=$1
    printf '%s\n' "$2" >"$tmp/$name.json"
    shift 2
    mkdir -p "$tmp/$name.state"
    POSTERN_STATE="$tmp/$name.state" "$@" serve --config "$tmp/$name.json" \
        2>"$tmp/$name.log" >/dev/null </dev/null &
    started=$!
    pids+=("$started")
    url=$(wait_line "$tmp/$name.log" '.*listening url=\(http://[^ "]*/mcp\).*' "$started") || {
        tail -n 20 "$tmp/$name.log" >&2
        die "the gateway did not log that it listens"
    }
}

list_body() { # prints the name of a file with a tools/list request
    printf '%s\n' '{"jsonrpc":"2.0","id":@ID@,"method":"tools/list","params":{}}' >"$tmp/list.body"
    printf '%s\n' "$tmp/list.body"
}

# URL TOOLS OPTIONS...: waits until the gateway lists exactly TOOLS tools, in one page.
await_tools() {
    local url=$1 tools=$2 deadline=$((SECONDS + 15))
    shift 2
    until "$build/bench/bench_load" --url "$url" --session --requests 1 --body "$(list_body)" \
        --expect-tools "$tools" "$@" >/dev/null 2>"$tmp/await.err"; do
        [ $SECONDS -lt $deadline ] || {
            cat "$tmp/await.err" >&2
            die "$url does not list $tools tools"
        }
        sleep 0.1
    done
}

call_body() { # TOOL: prints the name of a file with a tools/call request for it
    printf '{"jsonrpc":"2.0","id":@ID@,"method":"tools/call","params":{"name":"%s","arguments":{}}}\n' \
        "$1" >"$tmp/$1.body"
    printf '%s\n' "$tmp/$1.body"
}

field() { # NAME LINE: the number with that name in a line of the load generator
    sed "s/.*\"$1\":\([0-9.]*\).*/\1/" <<<"$2"
}

rss_kb() { # PID
    awk '/^VmRSS:/ { print $2 }' "/proc/$1/status"
}

fd_count() { # PID
    find "/proc/$1/fd" -mindepth 1 2>/dev/null | wc -l
}
