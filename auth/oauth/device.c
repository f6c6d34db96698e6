// Owns parsing the answer of a device authorization endpoint (RFC 8628).
#include "document.h"

#define INTERVAL_S 5
#define INTERVAL_MAX_S 300
#define USER_CODE_MAX 64

// The text is shown to the user, so it must be printable and short.
static bool is_readable(const char *text, size_t max)
{
    size_t len = text ? strlen(text) : 0;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || (unsigned char)text[i] >= 0x7f)
            return false;
    return len >= 1 && len <= max;
}

static int64_t seconds(const json_t *tree, const char *name, int64_t fallback, int64_t max)
{
    const json_t *value = json_object_get(tree, name);
    double said = json_is_number(value) ? json_number_value(value) : -1;
    return said < 1 ? fallback : said > (double)max ? max : (int64_t)said;
}

static bool read_device(const json_t *tree, struct arena *arena, struct oauth_device *out, struct err *err)
{
    const char *whole = oauth_document_copy(tree, "verification_uri_complete", arena);
    bool good = whole && is_readable(whole, OAUTH_VALUE_MAX) && oauth_url_secure(whole);
    *out = (struct oauth_device){.device_code = oauth_document_copy(tree, "device_code", arena),
                                 .user_code = oauth_document_copy(tree, "user_code", arena),
                                 .url = oauth_document_copy(tree, "verification_uri", arena),
                                 .whole_url = good ? whole : NULL,
                                 .interval_s = seconds(tree, "interval", INTERVAL_S, INTERVAL_MAX_S),
                                 .lifetime_s = seconds(tree, "expires_in", 600, 86400)};
    return (out->device_code && is_readable(out->user_code, USER_CODE_MAX) && is_readable(out->url, OAUTH_VALUE_MAX) &&
            oauth_url_secure(out->url)) ||
           err_set(err, ERR_UPSTREAM_INVALID,
                   "device authorization response: a code or the URL is missing or not valid");
}

bool oauth_device_parse(const struct oauth_answer *answer, struct arena *arena, struct oauth_device *out,
                        struct err *err)
{
    struct buf problem = {0};
    json_t *tree = oauth_document_parse(answer->body, "device authorization", err);
    bool ok = false;
    *out = (struct oauth_device){0};
    if (tree && answer->status == 200) {
        ok = read_device(tree, arena, out, err);
    } else {
        oauth_problem_put(tree, &problem);
        (void)err_set(err, ERR_DENIED, "the device authorization endpoint answered HTTP %d: %s", answer->status,
                      buf_text(&problem));
    }
    buf_release(&problem);
    json_decref(tree);
    return ok;
}
