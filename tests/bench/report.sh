# The benchmark's table, or its JSON with --json, and whether a bar was missed. Sourced by run.
# shellcheck shell=bash disable=SC2154

missed=0 json_rows=()

table_line() { # the twelve columns
    printf '%-11s %9s %9s %9s  %13s %13s %14s %11s  %5s %9s %6s  %s\n' "$@"
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

# TITLE ROW DIRECT NGINX GATEWAY BAR
print_row() {
    local title=$1 row=$2 bar=$6 direct nginx_line gate ratio low high verdict='' rss='' errors=0 name
    direct=$(median "$row" "$3") nginx_line=$(median "$row" "$4") gate=$(median "$row" "$5")
    read -r ratio low high <<<"$(ratio_of "$row" "$5" "$4")"
    for name in $3 $4 $5; do
        errors=$((errors + $(errors_in "$row" "$name")))
    done
    [ -z "$gate" ] || rss=$(rss_mb "${pid[$5]}")
    [ -z "$gate" ] || [ -z "$bar" ] || verdict="$(judge "$ratio" '>=' "$bar") (>= $bar)"
    [ "$errors" -eq 0 ] || verdict="MISSED ($errors errors)"
    [[ $verdict != MISSED* ]] || missed=1
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

print_guarded() { # beside the same gateway without identities, rules and audit
    local plain guarded ratio low high verdict errors
    plain=$(median guarded http) guarded=$(median guarded guarded)
    [ -n "$guarded" ] || return 0
    read -r ratio low high <<<"$(ratio_of guarded guarded http)"
    errors=$(($(errors_in guarded http) + $(errors_in guarded guarded)))
    verdict="$(judge "$ratio" '>=' "$bar_guarded") (>= $bar_guarded)"
    [ "$errors" -eq 0 ] || verdict="MISSED ($errors errors)"
    [[ $verdict != MISSED* ]] || missed=1
    if [ "$json" -eq 1 ]; then
        json_row guarded plain "$plain" guarded "$guarded" ratio "$ratio" ratio_low "$low" ratio_high "$high" \
            bar "$bar_guarded" errors "$errors"
        return
    fi
    printf 'bearer, 1,000 rules, audit: %s calls/s, without %s calls/s, CPU %s/%s us, ratio %s (%s-%s)  %s\n' \
        "$(show rps "$guarded")" "$(show rps "$plain")" "$(show cpu_us "$guarded")" "$(show cpu_us "$plain")" \
        "$ratio" "$low" "$high" "$verdict"
}

print_errors() {
    local name line verdict
    for name in nginx http stdio; do
        line=${lines[errors/$name]:-}
        line=${line%$'\n'}
        [ -n "$line" ] || continue
        verdict="$(judge "$(field errors "$line")" == 0) (0 errors)"
        [ $name = nginx ] || [[ $verdict != MISSED* ]] || missed=1
        if [ "$json" -eq 1 ]; then
            json_rows+=("\"errors-256-$name\":$line")
        else
            printf '256 connections, %-5s  %s calls, %s errors, %s calls/s, p50/p99 %s us  %s\n' $name \
                "$(field calls "$line")" "$(field errors "$line")" "$(field rps "$line")" \
                "$(latency "$line")" "$verdict"
        fi
    done
}

print_memory() { # the highest of all gateways that ran
    local name mb highest=0 verdict
    for name in http stdio list guarded; do
        [ -n "${pid[$name]:-}" ] || continue
        mb=$(rss_mb "${pid[$name]}")
        highest=$(awk "BEGIN { print ($mb > $highest ? $mb : $highest) }")
    done
    [ "$highest" != 0 ] || return 0
    verdict="$(judge "$highest" '<=' "$bar_rss") (<= $bar_rss MB)"
    [[ $verdict != MISSED* ]] || missed=1
    if [ "$json" -eq 1 ]; then
        json_rows+=("\"rss_mb\":$highest")
    else
        printf 'resident memory of the gateway after all rows: %s MB  %s\n' "$highest" "$verdict"
    fi
}

print_decide() { # one line for each number of rules; callers by turns are held to the bar, at 5,000 the slowest of them
    local line rules verdict
    [ -n "$decisions" ] || return 0
    while read -r line; do
        rules=$(field rules "$line") verdict=''
        [ "$rules" -ne 1000 ] || verdict="$(judge "$(field ns "$line")" '<' "$bar_decide") (< $bar_decide ns)"
        [ "$rules" -ne 5000 ] || verdict="$(judge "$(field p99_ns "$line")" '<' "$bar_decide_p99") (p99 < $bar_decide_p99 ns)"
        [[ $verdict != MISSED* ]] || missed=1
        if [ "$json" -eq 1 ]; then
            json_rows+=("\"decide-$rules\":$line")
        else
            printf 'decide, %5s rules: %s ns, %s ns for the same caller again, p99 %s ns  %s\n' "$rules" \
                "$(field ns "$line")" "$(field same_ns "$line")" "$(field p99_ns "$line")" "$verdict"
        fi
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
            printf 'verify, %s: %s us anew, %s ns out of the cache\n' "$algorithm" \
                "$(awk "BEGIN { printf \"%.1f\", $(field new_ns "$line") / 1000 }")" "$(field cached_ns "$line")"
        fi
    done <<<"$verifications"
}

print_token() {
    local ns verdict
    [ -n "$lookups" ] || return 0
    ns=$(field ns "$lookups")
    verdict="$(judge "$ns" '<' "$bar_token") (< $bar_token ns)"
    [[ $verdict != MISSED* ]] || missed=1
    if [ "$json" -eq 1 ]; then
        json_rows+=("\"token\":$lookups")
    else
        printf 'token, %s users: %s ns: %s ns to find it, %s ns to be given it  %s\n' "$(field users "$lookups")" "$ns" \
            "$(field store_ns "$lookups")" "$(field access_ns "$lookups")" "$verdict"
    fi
}

print_foot() {
    if [ "$json" -eq 1 ]; then
        local IFS=, ok=true
        [ $missed -eq 0 ] || ok=false
        printf '{%s,"rounds":%s,"ok":%s}\n' "${json_rows[*]}" "$rounds" $ok
        return
    fi
    [[ $only != decide && $only != verify && $only != token ]] || return 0
    cat <<TEXT
Median of $rounds rounds of $seconds s, of twice as many for what was below a bar. p50/99 in microseconds; CPU: microseconds
of nginx/postern per call, which other work on the machine disturbs least; ratio: postern to nginx, round by round.
TEXT
}
