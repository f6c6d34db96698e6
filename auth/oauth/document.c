// Owns reading and writing the JSON documents of OAuth.
#include "document.h"
#include "base/scan.h"
#include <stdlib.h>

json_t *oauth_document_parse(struct span text, const char *what, struct err *err)
{
    struct span value;
    if (text.len > OAUTH_DOCUMENT_MAX) {
        (void)err_set(err, ERR_UPSTREAM_INVALID, "%s: larger than %zu bytes", what, OAUTH_DOCUMENT_MAX);
        return NULL;
    }
    if (!scan_document(text, true, &value, err) || !scan_is_object(value)) {  // also bounds the depth
        (void)err_set(err, ERR_UPSTREAM_INVALID, "%s: not a JSON object", what);
        return NULL;
    }
    json_t *tree = json_parse(value, what, err);
    if (!tree)
        err->code = ERR_UPSTREAM_INVALID;
    return tree;
}

const char *oauth_document_string(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    const char *text = json_string_value(value);
    return text && *text && strlen(text) == json_string_length(value) ? text : NULL;
}

const char *oauth_document_copy(const json_t *object, const char *name, struct arena *arena)
{
    const char *text = oauth_document_string(object, name);
    return text ? arena_copy(arena, span_of(text)) : NULL;
}

void oauth_document_put(json_t *tree, struct buf *out)
{
    char *text = json_dumps(tree, JSON_COMPACT);
    buf_put_text(out, text);
    free(text);
    json_decref(tree);
}
