# Medians, ratios and verdicts over the lines of the load generator. Sourced by run, which fills $lines.
# shellcheck shell=bash disable=SC2154

column() { # ROW NAME FIELD: one number for each round
    [ -n "${lines[$1/$2]:-}" ] || return 0
    sed "s/.*\"$3\":\([0-9.]*\).*/\1/" <<<"${lines[$1/$2]%$'\n'}"
}

median() { # ROW NAME: the line of the median round, by calls per second
    [ -n "${lines[$1/$2]:-}" ] || return 0
    paste -d ' ' <(column "$1" "$2" rps) - <<<"${lines[$1/$2]%$'\n'}" | sort -n |
        awk '{ line[NR] = $2 } END { print line[int((NR + 1) / 2)] }'
}

ratio_of() { # ROW NAME BASE: the median, lowest and highest ratio of two targets, round by round
    [ -n "${lines[$1/$2]:-}" ] && [ -n "${lines[$1/$3]:-}" ] || return 0
    paste -d ' ' <(column "$1" "$2" rps) <(column "$1" "$3" rps) |
        awk '{ printf "%.3f\n", ($2 > 0 ? $1 / $2 : 0) }' | sort -n |
        awk '{ r[NR] = $1 } END { printf "%.2f %.2f %.2f\n", r[int((NR + 1) / 2)], r[1], r[NR] }'
}

pair_of() { # ROW NAME NAME FIELD: the medians of two targets' figures, and the median ratio of the second to the first
    paste -d ' ' <(column "$1" "$2" "$4" | sort -n | middle) <(column "$1" "$3" "$4" | sort -n | middle) \
        <(paste -d ' ' <(column "$1" "$2" "$4") <(column "$1" "$3" "$4") |
            awk '{ printf "%.2f\n", ($1 > 0 ? $2 / $1 : 0) }' | sort -n | middle)
}

middle() { # the median of sorted lines
    awk '{ line[NR] = $0 } END { print line[int((NR + 1) / 2)] }'
}

errors_in() { # ROW NAME: errors of all rounds
    column "$1" "$2" errors | awk '{ sum += $1 } END { print sum + 0 }'
}

judge() { # VALUE OPERATOR BAR: prints ok or MISSED
    if awk "BEGIN { exit !($1 $2 $3) }"; then echo ok; else echo MISSED; fi
}

show() { # FIELD LINE: its number, or a dash
    if [[ $2 == *"\"$1\":"* ]]; then field "$1" "$2"; else echo -; fi
}

latency() { # LINE: "p50/p99" in microseconds
    if [ -n "$1" ]; then echo "$(field p50_us "$1")/$(field p99_us "$1")"; else echo -; fi
}

rss_mb() { # PID: in millions of bytes
    awk "BEGIN { printf \"%.1f\", $(rss_kb "$1") * 1024 / 1e6 }"
}

peak_kb() { # PID: the highest resident memory since the process started or since reset_peak
    awk '/^VmHWM:/ { print $2 }' "/proc/$1/status"
}

peak_mb() { # PID
    awk "BEGIN { printf \"%.1f\", $(peak_kb "$1") * 1024 / 1e6 }"
}
