// Owns the list of findings about policy files.
#include "base/mem.h"
#include "source.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void policy_findings_add(struct policy_findings *findings, const char *code, const char *file, int line,
                         const char *rule, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    findings->at = mem_resize(findings->at, (findings->count + 1) * sizeof *findings->at);
    struct policy_finding *finding = &findings->at[findings->count++];
    *finding = (struct policy_finding){
        .file = mem_string(file), .line = line, .rule = mem_string(rule), .text = mem_string(text)};
    snprintf(finding->code, sizeof finding->code, "%s", code);
    findings->errors += code[0] == 'E';
}

void policy_findings_release(struct policy_findings *findings)
{
    for (size_t i = 0; i < findings->count; i++) {
        free(findings->at[i].file);
        free(findings->at[i].rule);
        free(findings->at[i].text);
    }
    free(findings->at);
    *findings = (struct policy_findings){0};
}
