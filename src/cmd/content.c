// Owns showing and saving the content of results.
#include "content.h"
#include "base/scan.h"
#include "base/secret.h"
#include "cmd/base/output.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define NAMES_MAX 1000  // of files of one kind in a folder

static void print_text(struct span item, const char *key)
{
    struct span raw;
    if (!scan_find(item, key, &raw) || !scan_is_string(raw))
        return;
    char *text = output_text_of(item, key);
    puts(text);
    free(text);
}

// The data of an image, a sound or a binary resource, as the raw string in base64.
static bool find_data(struct span content, struct span *data, struct span *holder)
{
    struct span inner;
    *holder = scan_find(content, "resource", &inner) && scan_is_object(inner) ? inner : content;
    return (scan_find(*holder, "data", data) || scan_find(*holder, "blob", data)) && scan_is_string(*data);
}

// The number of bytes that a string in base64 stands for.
static size_t size_of(struct span raw)
{
    size_t len = raw.len - 2;
    while (len && raw.at[len] == '=')
        len--;
    return len * 3 / 4;
}

static void print_data(struct span content, struct span holder, struct span data)
{
    char *type = output_text_of(content, "type"), *mime = output_text_of(holder, "mimeType");
    size_t bytes = size_of(data);
    printf("[%s: %s, ", strcmp(type, "resource") == 0 || !*type ? "data" : type, *mime ? mime : "unknown type");
    if (bytes < 1000)
        printf("%zu bytes]\n", bytes);
    else
        printf("%zu KB]\n", (bytes + 500) / 1000);
    free(type);
    free(mime);
}

static void print_one(struct span content)
{
    struct span type, inner, data, holder;
    if (find_data(content, &data, &holder)) {
        print_data(content, holder, data);
        print_text(holder, "uri");
    } else if (scan_find(content, "text", &inner)) {
        print_text(content, "text");
    } else if (scan_find(content, "resource", &inner)) {
        print_text(inner, scan_find(inner, "text", &type) ? "text" : "uri");
    } else if (scan_find(content, "type", &type)) {
        char *name = output_text_of(content, "type");
        printf("[%s]\n", name);
        free(name);
        print_text(content, "uri");
    } else {
        print_text(content, "uri");
    }
}

void content_print(struct span result, const char *list)
{
    struct span all, item, inner;
    if (!scan_find(result, list, &all) || !scan_is_array(all)) {
        printf("%.*s\n", SPAN_ARG(result));
        return;
    }
    struct scan_walk walk = scan_walk(all);
    while (scan_element(&walk, &item)) {
        if (!scan_find(item, "role", &inner)) {
            print_one(item);
            continue;
        }
        char *role = output_text_of(item, "role");
        printf("%s: ", role);
        free(role);
        if (scan_find(item, "content", &inner))
            print_one(inner);
    }
}

// ---- saving ---------------------------------------------------------------------------------

// The end of a file's name: the letters and digits of the subtype, so that a server cannot choose a path.
static void put_suffix(struct span holder, struct buf *out)
{
    char *mime = output_text_of(holder, "mimeType"), *subtype = strchr(mime, '/');
    size_t before = out->len;
    buf_put_char(out, '.');
    for (const char *c = subtype ? subtype + 1 : ""; isalnum((unsigned char)*c) && out->len < before + 16; c++)
        buf_put_char(out, (char)tolower((unsigned char)*c));
    if (out->len == before + 1)
        buf_put_text(out, "bin");
    free(mime);
}

static bool decode(struct span raw, struct buf *out)
{
    struct buf text = {0};
    scan_decode(raw, &text);
    for (size_t i = 0; i < text.len; i++)
        text.at[i] = text.at[i] == '+' ? '-' : text.at[i] == '/' ? '_' : text.at[i];
    while (text.len && text.at[text.len - 1] == '=')
        text.len--;
    bool ok = secret_decode(out, buf_span(&text));
    buf_release(&text);
    return ok;
}

// A new file with the next free number in its name.
static FILE *create(const char *folder, struct span holder, struct buf *path)
{
    FILE *file = NULL;
    errno = EEXIST;
    for (int i = 1; !file && errno == EEXIST && i <= NAMES_MAX; i++) {
        buf_clear(path);
        buf_printf(path, "%s/content-%d", folder, i);
        put_suffix(holder, path);
        file = fopen(buf_text(path), "wbxe");
    }
    return file;
}

static bool save_one(struct span content, const char *folder, struct err *err)
{
    struct span data, holder;
    struct buf bytes = {0}, path = {0};
    if (!find_data(content, &data, &holder))
        return true;
    bool ok = decode(data, &bytes) || err_set(err, ERR_UPSTREAM_INVALID, "the server sent data that is not base64");
    FILE *file = ok ? create(folder, holder, &path) : NULL;
    bool written = file && fwrite(buf_text(&bytes), 1, bytes.len, file) == bytes.len;
    if (file && fclose(file) != 0)
        written = false;
    if (ok && !written)
        ok = err_set(err, ERR_SYSTEM, "--save: %s: %s", buf_text(&path), strerror(errno));
    if (ok)
        fprintf(stderr, "postern: saved %s\n", buf_text(&path));
    buf_release(&bytes);
    buf_release(&path);
    return ok;
}

// Data that cannot be saved does not keep the rest from it. The error is the first one.
bool content_save(struct span result, const char *list, const char *folder, struct err *err)
{
    struct span all, item, inner;
    struct err later;
    bool ok = true;
    if (!scan_find(result, list, &all) || !scan_is_array(all))
        return true;
    for (struct scan_walk walk = scan_walk(all); scan_element(&walk, &item);) {
        bool message = scan_find(item, "role", &inner) && scan_find(item, "content", &inner);
        ok = save_one(message ? inner : item, folder, ok ? err : &later) && ok;
    }
    return ok;
}
