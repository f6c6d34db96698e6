# The row `streams`: the cost of thousands of idle event streams in memory, processor time and latency of other calls.
# Sourced by run.
# shellcheck shell=bash disable=SC2154

streams=10000 stream_rounds=11 stream_idle=15 # seconds: a whole heartbeat period, since the heartbeats of streams that were opened together come together
if [ "$quick" -eq 1 ]; then
    streams=4000 stream_rounds=5
fi
stream_figures='' # KB per stream, per cent of a core, and the p50 in microseconds without and with the streams

cpu_ticks() { # PID: user and system time in hundredths of a second
    awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$1/stat"
}

# Two gateways, of which only one has the streams; calls to both are measured in turn.
start_streams() {
    local name
    ulimit -n "$(ulimit -Hn)"
    [ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -gt $((streams + 1000)) ] || streams=$(($(ulimit -n) - 1000))
    for name in alone streams; do
        start_middle $name "\"bench\":{\"url\":\"$small_url/mcp\"}" 5 \
            '"limits":{"connections":20000,"unauthenticated_connections":20000,"sessions":20000}'
        measure warm $name 8 "$tmp/bench__small.body"
    done
}

# NAME COUNT OPTIONS...: holds COUNT sessions with an event stream each at the gateway NAME, until release_streams.
hold_streams() {
    local name=$1 count=$2
    shift 2
    rm -f "$tmp/hold.in"
    mkfifo "$tmp/hold.in"
    taskset -c "$load_core" "$build/bench/bench_load" --url "${target[$name]}" --hold --connections "$count" "$@" \
        <"$tmp/hold.in" >"$tmp/hold.out" 2>"$tmp/hold.err" &
    holder=$!
    exec 8>"$tmp/hold.in"
    pids+=("$holder")
    wait_line "$tmp/hold.out" '^\(holding .*\)' "$holder" >/dev/null || {
        cat "$tmp/hold.err" >&2
        die "$count event streams could not be opened"
    }
}

release_streams() { # fails if a stream had ended before
    exec 8>&-
    wait "$holder"
}

measure_streams() {
    local before kb ticks percent
    start_streams
    hold_streams streams "$streams"
    before=$(rss_kb "${pid[alone]}")
    kb=$(awk "BEGIN { printf \"%.1f\", ($(rss_kb "${pid[streams]}") - $before) / $streams }")
    sleep 1
    ticks=$(cpu_ticks "${pid[streams]}")
    sleep $stream_idle
    percent=$(awk "BEGIN { printf \"%.1f\", ($(cpu_ticks "${pid[streams]}") - $ticks) / $stream_idle }")
    repeat $stream_rounds measure_beside
    release_streams || die "event streams ended early: $(cat "$tmp/hold.out")"
    stream_figures="$kb $percent $(pair_of streams alone streams p50_us)"
}

# shellcheck disable=SC2317 # called by name, in repeat
measure_beside() {
    measure streams alone 8 "$tmp/bench__small.body"
    measure streams streams 8 "$tmp/bench__small.body"
}

print_streams() {
    local kb percent alone beside ratio
    [ -n "$stream_figures" ] || return 0
    read -r kb percent alone beside ratio <<<"$stream_figures"
    print_figure "$streams idle streams: $kb KB each" "$kb" '<=' $bar_stream_kb ' KB'
    print_figure "$streams idle streams: $percent % of a core" "$percent" '<' $bar_stream_cpu ' %'
    print_figure "$streams idle streams: p50 of a call $beside us, $alone us without, ratio $ratio" "$ratio" '<=' $bar_stream_p50
    json_row streams streams "$streams" kb_each "$kb" cpu_percent "$percent" p50_us_alone "$alone" p50_us "$beside" ratio "$ratio"
}
