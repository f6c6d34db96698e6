# The row `large`: the highest memory while eight results of 50 MB pass at once, with and without a budget. Sourced by run.
# shellcheck shell=bash disable=SC2154

large_bytes=50000000 large_calls=8 large_budget=128000000
large_figures='' # one line per run: upstream, budget in MB or 0, peak above idle in MB, seconds, answers

reset_peak() { # PID
    echo 5 >"/proc/$1/clear_refs"
}

measure_large_one() { # UPSTREAM BUDGET
    local name=large-$1-$2 servers idle line status=0 peak
    case $1 in
    stdio) servers=$(stdio_servers 1 5) ;;
    *)
        start_upstream "$name" "$load_core" "$1"
        servers="\"bench\":{\"url\":\"$url\"}"
        ;;
    esac
    start_middle "$name" "$servers" 5 "\"limits\":{\"memory\":$2,\"max_body\":\"16MiB\"}" # a budget must hold at least two bodies
    idle=$(rss_kb "${pid[$name]}")
    reset_peak "${pid[$name]}"
    line=$(taskset -c "$load_core" "$build/bench/bench_load" --url "${target[$name]}" --session --connections $large_calls \
        --requests $large_calls --timeout 120 --body "$tmp/huge.body" --expect-text $large_bytes 2>"$tmp/load.err") || status=$?
    [ $status -eq 0 ] || sed "s/^/$name: /" "$tmp/load.err" >&2
    peak=$(awk "BEGIN { printf \"%.0f\", ($(peak_kb "${pid[$name]}") - $idle) * 1024 / 1e6 }")
    stop_pid "${pid[$name]}"
    large_figures+="$1 $(($2 / 1000000)) $peak $(field seconds "$line") $(field calls "$line")"$'\n'
}

measure_large() {
    local upstream budget
    printf '{"jsonrpc":"2.0","id":@ID@,"method":"tools/call","params":{"name":"bench__huge","arguments":{"bytes":%s}}}\n' \
        $large_bytes >"$tmp/huge.body"
    for upstream in http sse stdio; do
        for budget in 0 $large_budget; do
            measure_large_one $upstream $budget
        done
    done
}

print_large() {
    local upstream budget peak seconds calls bar words
    while read -r upstream budget peak seconds calls; do
        [ -n "$upstream" ] || continue
        bar=$bar_large words='no budget'
        [ "$budget" -eq 0 ] || bar=$bar_large_budget words="a budget of $budget MB"
        print_figure "$large_calls x 50 MB, $upstream, $words: $peak MB above idle in $seconds s" "$peak" '<=' $bar ' MB'
        print_figure "$large_calls x 50 MB, $upstream, $words: $calls answered" "$calls" '==' $large_calls
        json_row "large-$upstream-$budget" peak_mb "$peak" seconds "$seconds" answers "$calls"
    done <<<"${large_figures%$'\n'}"
}
