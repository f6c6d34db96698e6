# The benchmark's table, or its JSON with --json, and whether a bar was missed. Sourced by run.
# shellcheck shell=bash disable=SC2154

missed=0 json_rows=()

table_line() { # the twelve columns
    printf '%-13s %9s %9s %9s  %13s %13s %14s %11s  %5s %9s %6s  %s\n' "$@"
}

print_head() {
    [ "$json" -eq 1 ] || table_line row direct/s nginx/s postern/s 'direct p50/99' 'nginx p50/99' \
        'postern p50/99' 'CPU n/p' ratio low-high RSS bar
}

json_row() { # NAME VALUE... : pairs of keys and JSON values, empty ones null
    local text="\"$1\":{" comma=''
    shift
    while [ $# -gt 1 ]; do
        text+="$comma\"$1\":${2:-null}"
        comma=,
        shift 2
    done
    json_rows+=("$text}")
}

# VALUE OPERATOR BAR [UNIT]: sets $verdict, and $missed when the bar is missed.
judge_row() {
    verdict="$(judge "$1" "$2" "$3") ($2 $3${4:-})"
    [[ $verdict != MISSED* ]] || missed=1
}

# TEXT VALUE OPERATOR BAR [UNIT]: prints a line with one figure and its verdict.
print_figure() {
    local verdict
    judge_row "${@:2}"
    [ "$json" -eq 1 ] || printf '%s  %s\n' "$1" "$verdict"
}

# TITLE ROW DIRECT NGINX GATEWAY BAR
print_row() {
    local title=$1 row=$2 bar=$6 direct nginx_line gate ratio low high verdict='' rss='' errors=0 name
    direct=$(median "$row" "$3") nginx_line=$(median "$row" "$4") gate=$(median "$row" "$5")
    read -r ratio low high <<<"$(ratio_of "$row" "$5" "$4")"
    for name in $3 $4 $5; do
        errors=$((errors + $(errors_in "$row" "$name")))
    done
    [ -z "$gate" ] || rss=$(rss_mb "${pid[$5]}")
    [ -z "$gate" ] || [ -z "$bar" ] || judge_row "$ratio" '>=' "$bar"
    if [ "$errors" -ne 0 ]; then
        verdict="MISSED ($errors errors)" missed=1
    fi
    if [ "$json" -eq 1 ]; then
        json_row "$title" direct "$direct" nginx "$nginx_line" postern "$gate" ratio "$ratio" ratio_low "$low" \
            ratio_high "$high" bar "$bar" errors $errors rss_mb "$rss"
        return
    fi
    table_line "$title" "$(show rps "$direct")" "$(show rps "$nginx_line")" "$(show rps "$gate")" \
        "$(latency "$direct")" "$(latency "$nginx_line")" "$(latency "$gate")" \
        "$(show cpu_us "$nginx_line")/$(show cpu_us "$gate")" "${ratio:--}" "${low:+$low-$high}" "${rss:--}" \
        "$verdict"
}

print_guarded() { # compared with the same gateway without identities, rules and audit
    local ratio low high
    read -r ratio low high <<<"$(ratio_of small guarded-http http)"
    [ -n "$ratio" ] || return 0
    json_row guarded-to-open ratio "$ratio" ratio_low "$low" ratio_high "$high"
    [ "$json" -eq 1 ] || echo "guarded-http to the same gateway without identities, rules and audit: $ratio ($low-$high)"
}

print_memory() {
    local name mb added highest=0
    if [ -n "${pid[http-256]:-}" ]; then
        mb=$(peak_mb "${pid[http-256]}")
        print_figure "resident memory, idle: $idle_mb MB" "$idle_mb" '<=' "$bar_rss_idle" ' MB'
        print_figure "resident memory with 256 connections, at most: $mb MB" "$mb" '<=' "$bar_rss_256" ' MB'
        added=$(awk "BEGIN { print $cached_mb - $idle_mb }")
        print_figure "resident memory, idle, that the catalogue cache adds: $added MB" "$added" '<=' "$bar_rss_cached" ' MB'
        json_row memory idle_mb "$idle_mb" mb_256 "$mb" cached_mb "$cached_mb"
    fi
    for name in http stdio list guarded-http guarded-stdio; do
        [ -n "${pid[$name]:-}" ] || continue
        mb=$(rss_mb "${pid[$name]}")
        highest=$(awk "BEGIN { print ($mb > $highest ? $mb : $highest) }")
    done
    [ "$highest" != 0 ] || return 0
    print_figure "resident memory after all rows, of the largest gateway: $highest MB" "$highest" '<=' "$bar_rss" ' MB'
    json_rows+=("\"rss_mb\":$highest")
}

print_decide() { # one line per number of rules; the bars apply to callers in turn, and to the p99 at 5,000 rules
    local line rules verdict
    [ -n "$decisions" ] || return 0
    while read -r line; do
        rules=$(field rules "$line") verdict=''
        [ "$rules" -ne 1000 ] || judge_row "$(field ns "$line")" '<' "$bar_decide" ' ns'
        [ "$rules" -ne 5000 ] || judge_row "$(field p99_ns "$line")" '<' "$bar_decide_p99" ' ns p99'
        json_rows+=("\"decide-$rules\":$line")
        [ "$json" -eq 1 ] || printf 'decide, %5s rules: %s ns, %s ns for the same caller again, p99 %s ns  %s\n' "$rules" \
            "$(field ns "$line")" "$(field same_ns "$line")" "$(field p99_ns "$line")" "$verdict"
    done <<<"$decisions"
}

print_verify() {
    local line algorithm
    [ -n "$verifications" ] || return 0
    while read -r line; do
        algorithm=$(sed 's/.*"algorithm":"\([^"]*\)".*/\1/' <<<"$line")
        if [ "$json" -eq 1 ]; then
            json_rows+=("\"verify-$algorithm\":$line")
        else
            printf 'verify, %s: %s us without the cache, %s ns with it\n' "$algorithm" \
                "$(awk "BEGIN { printf \"%.1f\", $(field new_ns "$line") / 1000 }")" "$(field cached_ns "$line")"
        fi
    done <<<"$verifications"
}

print_token() {
    local ns
    [ -n "$lookups" ] || return 0
    ns=$(field ns "$lookups")
    json_rows+=("\"token\":$lookups")
    print_figure "token, $(field users "$lookups") users: $ns ns: $(field store_ns "$lookups") ns in the store, $(
        field access_ns "$lookups") ns in the access" "$ns" '<' "$bar_token" ' ns'
}

print_foot() {
    if [ "$json" -eq 1 ]; then
        local IFS=, ok=true
        [ $missed -eq 0 ] || ok=false
        printf '{%s,"rounds":%s,"ok":%s}\n' "${json_rows[*]}" "$rounds" $ok
        return
    fi
    has_table || return 0
    cat <<TEXT
Median of $rounds rounds of $seconds s, of more for a row that was below its bar. p50/99 in microseconds; CPU: microseconds
of nginx/postern per call, which other work on the machine disturbs least; ratio: postern to nginx, round by round.
TEXT
}
