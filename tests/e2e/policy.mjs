// What policy files of tests have in common.

/** A rule for tools in every tenant; `more` adds and replaces members. */
export const policyRule = (id, effect, more) => ({ id, effect, description: `the rule ${id} of this test`, tenants: ['*'], kinds: ['tool'], ...more });
