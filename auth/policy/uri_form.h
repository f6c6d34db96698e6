// Checks that URIs, templates and patterns are canonical.
#ifndef AUTH_POLICY_URI_FORM_H
#define AUTH_POLICY_URI_FORM_H

#include "auth/policy/uri.h"

bool policy_uri_is_canonical(struct span uri);
// For an RFC 6570 template: its literal parts can occur in a canonical URI.
bool policy_uri_template_is_canonical(struct span uri_template);
// For a name pattern of a policy: it can match a canonical URI, or with `template` a canonical template.
bool policy_uri_pattern_can_match(const char *pattern, bool template);

#endif
