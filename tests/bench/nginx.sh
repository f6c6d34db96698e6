# The nginx that the gateway is compared with: its configuration and its start. Sourced by run.
# shellcheck shell=bash disable=SC2154

nginx=$(PATH=$PATH:/usr/sbin command -v nginx) || die "nginx is missing (Debian: apt-get install nginx-light)"

# PORT: one worker that keeps connections to the upstreams, and buffers in memory.
nginx_config() {
    local user=''
    [ "$(id -u)" -ne 0 ] || user='user root;'
    cat <<TEXT
$user
worker_processes 1;
daemon off;
pid $tmp/nginx.pid;
error_log $tmp/nginx.log warn;
events { worker_connections 2048; }
http {
    access_log off;
    client_body_temp_path $tmp/nginx.body;
    proxy_temp_path $tmp/nginx.proxy;
    fastcgi_temp_path $tmp/nginx.fastcgi;
    uwsgi_temp_path $tmp/nginx.uwsgi;
    scgi_temp_path $tmp/nginx.scgi;
    keepalive_requests 100000000;
    tcp_nodelay on;
    upstream small { server ${small_url#http://}; keepalive 256; keepalive_requests 100000000; }
    upstream list { server ${list_url#http://}; keepalive 256; keepalive_requests 100000000; }
    server {
        listen 127.0.0.1:$1;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_buffering on;
        proxy_buffer_size 16k;
        proxy_buffers 16 16k;
        proxy_busy_buffers_size 64k;
        proxy_max_temp_file_size 0;
        location /mcp { proxy_pass http://small; }
        location /list { proxy_pass http://list; }
    }
}
TEXT
}

# nginx cannot choose a free port itself, so several are tried. Sets $nginx_url and $nginx_worker.
start_nginx() {
    local port started
    for _ in {1..10}; do
        port=$((20000 + RANDOM % 10000))
        nginx_config $port >"$tmp/nginx.conf"
        taskset -c "$middle_core" "$nginx" -p "$tmp" -e "$tmp/nginx.log" -c "$tmp/nginx.conf" \
            >/dev/null 2>&1 </dev/null &
        started=$!
        for _ in {1..40}; do
            sleep 0.05
            kill -0 $started 2>/dev/null || break
            [ -s "$tmp/nginx.pid" ] || continue
            pids+=("$started")
            nginx_url=http://127.0.0.1:$port
            nginx_worker=$(pgrep -P "$started")
            return 0
        done
        stop_pid $started
    done
    cat "$tmp/nginx.log" >&2
    die "nginx did not start"
}
