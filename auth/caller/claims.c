// Owns what the claims of a verified token mean to the gateway: roles, scopes and the tenant.
#include "claims.h"
#include "base/mem.h"
#include "base/pointer.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

// The error says what is wrong with the token and never contains a part of it.
#define refuse(err, ...) err_set((err), ERR_UNAUTHENTICATED, "token: " __VA_ARGS__)

// Bounded and without control characters: safe for logs and policies.
static bool is_plain(struct span text, size_t max)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] < 0x20 || text.at[i] == 0x7F)
            return false;
    return text.len > 0 && text.len <= max;
}

bool claims_pointer_check(const char *pointer, struct err *err)
{
    return pointer_is_valid(pointer) ||
           err_set(err, ERR_CONFIG, "\"%s\" is not a JSON pointer such as /realm_access/roles", pointer);
}

const json_t *claims_find(const struct jwt_claims *claims, const char *pointer)
{
    struct buf step = {0};
    const json_t *node = claims->tree;
    while (node && *pointer)
        node = pointer_step(&pointer, &step) ? json_object_get(node, buf_text(&step)) : NULL;
    buf_release(&step);
    return node;
}

// True if the issuer refers to another place for the claim (`_claim_names`).
static bool is_elsewhere(const struct jwt_claims *claims, const char *pointer)
{
    struct buf step = {0};
    const json_t *names = json_object_get(claims->tree, "_claim_names");
    bool yes = pointer_step(&pointer, &step) && json_object_get(names, buf_text(&step));
    buf_release(&step);
    return yes;
}

// Walks the values of a claim that is a string or an array of strings; a `list` string holds several values, separated by spaces.
struct values {
    const json_t *claim;
    bool list;
    size_t at;
};

static bool values_next(struct values *values, struct span *out)
{
    if (json_is_array(values->claim)) {
        const json_t *item = json_array_get(values->claim, values->at++);
        *out = span_of(json_string_value(item));
        return item;
    }
    struct span rest = span_after(span_of(json_string_value(values->claim)), values->at);
    while (values->list && rest.len && *rest.at == ' ')
        rest = span_after(rest, 1), values->at++;
    const char *space = values->list && rest.len ? memchr(rest.at, ' ', rest.len) : NULL;
    *out = span_make(rest.at, space ? (size_t)(space - rest.at) : rest.len);
    values->at += out->len;
    return out->len > 0;
}

static bool has_values(const json_t *claim)
{
    size_t i;
    const json_t *item;
    json_array_foreach(claim, i, item)
        if (!json_is_string(item))
            return false;
    return json_is_string(claim) || json_is_array(claim);
}

static void add_role(struct identity *into, struct span role)
{
    for (size_t i = 0; i < into->role_count; i++)
        if (span_is(role, into->roles[i]))
            return;
    identity_add_role(into, role);
}

static void add_value(const struct claims_role_rules *rules, struct span value, struct identity *into)
{
    for (size_t i = 0; i < rules->values.count; i++)
        if (span_is(value, rules->values.at[i].name)) {
            add_role(into, span_of(rules->values.at[i].value));
            return;
        }
}

static bool add_claim(const struct claims_role_rules *rules, struct values values, struct identity *into, size_t *count,
                      const char *name, struct err *err)
{
    struct span value;
    if (!values.claim)
        return true;
    if (!has_values(values.claim))
        return refuse(err, "%s is neither a string nor an array of strings", name);
    while (values_next(&values, &value)) {
        if (++*count > CLAIMS_VALUES_MAX)
            return refuse(err, "more than %d role values", CLAIMS_VALUES_MAX);
        add_value(rules, value, into);
    }
    return true;
}

bool claims_add_roles(const struct jwt_claims *claims, const struct claims_role_rules *rules, struct identity *into,
                      struct err *err)
{
    size_t count = 0;
    const char *const standard[] = {"/scope", "/scp"};
    for (size_t i = 0; i < COUNT(standard) || (rules->claims && rules->claims[i - COUNT(standard)]); i++) {
        bool list = i < COUNT(standard);
        const char *pointer = list ? standard[i] : rules->claims[i - COUNT(standard)];
        if (is_elsewhere(claims, pointer)) {
            into->roles_left_out = true;
            continue;
        }
        if (!add_claim(rules, (struct values){claims_find(claims, pointer), list, 0}, into, &count, pointer, err))
            return false;
    }
    return true;
}

static bool claim_has(const json_t *claim, const char *word)
{
    struct values values = {claim, true, 0};
    struct span value;
    while (has_values(claim) && values_next(&values, &value))
        if (span_is(value, word))
            return true;
    return false;
}

bool claims_have_scopes(const struct jwt_claims *claims, char *const *scopes)
{
    for (size_t i = 0; scopes && scopes[i]; i++)
        if (!claim_has(json_object_get(claims->tree, "scope"), scopes[i]) &&
            !claim_has(json_object_get(claims->tree, "scp"), scopes[i]))
            return false;
    return true;
}

const char *claims_tenant(const struct jwt_claims *claims, const char *pointer, const char *fixed, struct err *err)
{
    if (!pointer)
        return fixed;
    const char *tenant = json_string_value(claims_find(claims, pointer));
    if (tenant && is_plain(span_of(tenant), JWT_SUBJECT_MAX))
        return tenant;
    (void)refuse(err, "the claim %s does not name a tenant", pointer);
    return NULL;
}
