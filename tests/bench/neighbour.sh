# The row `neighbour`: how long one tenant's small calls take while another tenant sends large bodies, or has a server that
# sends junk or notifications. Sourced by run.
# shellcheck shell=bash disable=SC2154

neighbour_seconds=8 neighbour_sessions=1000
[ "$quick" -eq 0 ] || neighbour_seconds=2
declare -A neighbour_figures=() # by the disturbance: p50, p99 and max in microseconds, calls, errors

# Everything but the gateway runs on the load generator's core; the disturbing programs run there at a lower priority.
disturb() { nice -n 10 taskset -c "$load_core" "$build/bench/bench_load" --url "${target[neighbour]}" --header "$noisy" "$@"; }

start_neighbours() {
    printf '%s' '{"version":1,"description":"Everything is allowed","rules":[{"id":"all","effect":"allow","description":"Everything",
        "tenants":["*"],"subjects":["authenticated"],"servers":["*"],"kinds":["tool"],"names":["*"]}]}' >"$tmp/neighbours-policy.json"
    quiet=$(new_token neighbours.json quiet default) noisy=$(new_token neighbours.json noisy loud)
    start_middle neighbour "\"bench\":{\"url\":\"$small_url/mcp\"}" 5 "\"auth\":{\"providers\":[{\"type\":\"bearer\",
        \"tokens\":\"neighbours.json\"}]},\"policy\":\"neighbours-policy.json\",\"limits\":{\"identity_sessions\":2000},
        \"tenants\":{\"loud\":{\"mcpServers\":{\"bench\":{\"command\":\"nice\",\"args\":[\"-n\",\"10\",\"taskset\",\"-c\",
        \"$load_core\",\"$build/bench/bench_upstream\",\"stdio\"]}}}}" "$quiet"
    await_tools "${target[neighbour]}" 5 --header "$noisy"
}

# DISTURBANCE: of several measurements the lowest p99 counts, because other work on the machine can only increase it.
measure_neighbour_one() {
    local line before=${neighbour_figures[$1]:-}
    line=$(taskset -c "$load_core" "$build/bench/bench_load" --url "${target[neighbour]}" --session --connections 4 --rate 400 \
        --seconds $neighbour_seconds --timeout 60 --body "$tmp/bench__small.body" --header "$quiet" \
        2>"$tmp/load.err") || sed "s/^/neighbour $1: /" "$tmp/load.err" >&2
    [ -n "$line" ] || die "neighbour: no figures for $1"
    [ -n "$before" ] && [ "$(cut -d ' ' -f 2 <<<"$before")" -le "$(field p99_us "$line")" ] ||
        neighbour_figures[$1]="$(field p50_us "$line") $(field p99_us "$line") $(field max_us "$line") $(field calls "$line") $(field errors "$line")"
}

neighbour_bar() { # in microseconds
    awk '{ print 2 * $2 + 10000 }' <<<"${neighbour_figures[quiet]}"
}

measure_disturbed() { # DISTURBANCE: measures twice if the first figure is above the bar; the disturbance lasts for both
    measure_neighbour_one "$1"
    [ "$(cut -d ' ' -f 2 <<<"${neighbour_figures[$1]}")" -le "$(neighbour_bar)" ] || measure_neighbour_one "$1"
}

# Almost 64 MiB each: a ping with very many values, and a call that the policy allows.
write_bodies() {
    local padding=$((64 * 1024 * 1024 - 200))
    { printf '{"jsonrpc":"2.0","id":@ID@,"method":"ping","params":{"padding":['
        { yes 0, 2>/dev/null || true; } | head -c $((padding / 2 * 3)) | tr -d '\n'
        printf '0]}}\n'; } >"$tmp/ping.body"
    { printf '{"jsonrpc":"2.0","id":@ID@,"method":"tools/call","params":{"name":"bench__small","arguments":{"padding":"'
        head -c $padding /dev/zero | tr '\0' x
        printf '"}}}\n'; } >"$tmp/padded.body"
}

beside_bodies() { # BODY: measures while another identity sends BODY repeatedly
    local sender
    disturb --session --connections 2 --seconds $((2 * neighbour_seconds + 5)) --timeout 60 --any-answer --body "$tmp/$1.body" \
        >"$tmp/disturb.out" 2>&1 &
    sender=$!
    pids+=($sender)
    sleep 0.5
    measure_disturbed "$1"
    stop_pid $sender
}

beside_flood() { # MODE: measures while the other tenant's server floods the gateway
    local deadline=$((SECONDS + 60))
    printf '{"jsonrpc":"2.0","id":@ID@,"method":"tools/call","params":{"name":"bench__flood","arguments":{"mode":"%s","ms":%s}}}\n' \
        "$1" $((2 * neighbour_seconds * 1000 + 1500)) >"$tmp/flood.body"
    until disturb --session --requests 1 --timeout 60 --body "$tmp/flood.body" >/dev/null 2>"$tmp/disturb.out"; do
        # output of the previous disturbance may still be on its way through the same server
        [ $SECONDS -lt $deadline ] || die "no flood of $1: $(cat "$tmp/disturb.out")"
        sleep 0.2
    done
    sleep 0.5
    measure_disturbed "$1"
}

await_quiet() { # after a disturbance: waits until calls are fast again
    local line deadline=$((SECONDS + 60))
    until line=$(taskset -c "$load_core" "$build/bench/bench_load" --url "${target[neighbour]}" --session --requests 50 --timeout 30 \
        --body "$tmp/bench__small.body" --header "$quiet" 2>/dev/null) && [ "$(field p50_us "$line")" -lt 10000 ]; do
        [ $SECONDS -lt $deadline ] || die "neighbour: calls are slow after the disturbance has ended"
        sleep 0.1
    done
}

measure_neighbour() {
    start_neighbours
    write_bodies
    measure_neighbour_one quiet
    beside_bodies ping
    beside_bodies padded
    await_quiet
    beside_flood junk
    await_quiet
    hold_streams neighbour $neighbour_sessions --header "$noisy"
    beside_flood notes
    release_streams || true # the gateway may have closed a stream that was read too slowly
}

print_neighbour() {
    local what p50 p99 max calls errors words
    [ -n "${neighbour_figures[quiet]:-}" ] || return 0
    for what in quiet ping padded junk notes; do
        read -r p50 p99 max calls errors <<<"${neighbour_figures[$what]}"
        case $what in
        quiet) words='quiet' ;;
        ping) words='repeated pings of 64 MiB, 32 million values' ;;
        padded) words='repeated calls of 64 MiB' ;;
        junk) words='a server that sends junk lines' ;;
        notes) words="a server that sends notifications, $neighbour_sessions sessions" ;;
        esac
        print_figure "neighbour, $words: p50 $p50 us, p99 $p99 us, max $max us of $calls calls" "$p99" '<=' "$(neighbour_bar)" ' us'
        [ "$errors" -eq 0 ] || print_figure "neighbour, $words: $errors errors" "$errors" '==' 0
        json_row "neighbour-$what" p50_us "$p50" p99_us "$p99" max_us "$max" calls "$calls" errors "$errors"
    done
}
