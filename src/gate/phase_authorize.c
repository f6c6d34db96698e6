// Owns the phase `authorize`: asks the policy in force about one call, and names the rule that denied it.
#include "arguments.h"
#include "auth/policy/uri.h"
#include "base/log.h"
#include "base/scan.h"
#include "gate/session/permit.h"
#include "phase.h"

// Adds the canonical spelling to the error. It discloses nothing, because it follows from the URI alone.
static void put_canonical(struct call *call, struct buf *text)
{
    enum policy_kind kind;
    struct buf uri = {0};
    (void)permit_of(call, &kind);
    if (policy_uri_put_canonical(call->target, kind == POLICY_TEMPLATE, &uri)) {
        buf_printf(text, ": the canonical spelling is %.*s", SPAN_ARG(buf_span(&uri)));
        buf_put_text(&call->error_data, ",\"canonical\":");
        scan_encode(buf_span(&uri), &call->error_data);
    }
    buf_release(&uri);
}

// The error names the rule that denied the call and its description (X19), and no other rule.
static enum phase_result deny(struct call *call)
{
    const struct policy_rule *rule = call->decision.rule;
    struct buf text = {0};
    buf_printf(&text, "%s (rule %s)", err_text(ERR_DENIED), call->decision.by);
    buf_clear(&call->error_data);
    buf_put_text(&call->error_data, "\"rule\":");
    scan_encode(span_of(call->decision.by), &call->error_data);
    if (rule) {
        buf_printf(&text, ": %s", rule->description);
        buf_put_text(&call->error_data, ",\"description\":");
        scan_encode(span_of(rule->description), &call->error_data);
    }
    if (strcmp(call->decision.by, "uri_not_canonical") == 0)
        put_canonical(call, &text);
    call->error_text = arena_copy(&call->arena, buf_span(&text));
    buf_release(&text);
    return call_fail(call, ERR_DENIED, "denied by %s", call->decision.by);
}

// A name that no server has is decided like a name without a rule, so that a denial does not disclose what exists.
static bool ask_policy(struct call *call, enum policy_kind kind)
{
    struct policy_question question = {call->identity, call->link ? upstream_server(call->link->upstream)->name : "",
                                       kind, call->target, NULL};
    json_t *args;
    if (!arguments_read(call, &question, &args))
        return false;
    question.args = args;
    bool open = policy_is_open(call->policy);
    call->decision = call->link || open ? policy_decide(call->tenant->memo, &question)
                                        : (struct policy_decision){VERDICT_DENY, NULL, "default"};
    const struct policy_rule *shadow = call->link ? policy_shadow(call->tenant->memo, &question) : NULL;
    if (shadow)
        log_info("shadow rule matches", LOG_STR("request", call->request_id), LOG_STR("rule", shadow->id),
                 LOG_STR("effect", shadow->effect ? "allow" : "deny"));
    json_decref(args);
    return true;
}

// A task belongs to its owner while the policy lets the owner use anything of its server.
static bool owner_may(const struct call *call)
{
    return !call->link ||
           policy_visible_server(call->tenant->memo, call->identity, upstream_server(call->link->upstream)->name);
}

// Decides by the policy in force. The call keeps a reference, because its decision points into the policy.
enum phase_result phase_authorize(struct call *call)
{
    enum policy_kind kind = POLICY_TOOL;
    policy_unref(call->policy);
    call->policy = policy_ref(call->tenant->policy);
    call->judged_epoch = call->gate->policy_epoch;
    enum permit permit = permit_of(call, &kind);
    call->decision =
        (struct policy_decision){VERDICT_DENY, NULL, permit == PERMIT_NEVER ? "builtin:method" : "default"};
    if (permit == PERMIT_POLICY) {
        if (!ask_policy(call, kind))
            return PHASE_FAIL;
    } else if (permit == PERMIT_ALWAYS || (permit == PERMIT_OWNER && owner_may(call))) {
        call->decision = (struct policy_decision){VERDICT_ALLOW, NULL, "builtin:method"};
    }
    if (permit == PERMIT_NEVER)
        return PHASE_FAIL;  // an unknown method: `route` has set the error
    if (!call_is_allowed(call))
        return deny(call);
    return call->err.code ? PHASE_FAIL : PHASE_NEXT;  // the error of `route`, withheld until the call is allowed
}
