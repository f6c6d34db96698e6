// Owns requests to the grant store as their callers use them: cancelling a request and releasing its results.
#include "encoding.h"
#include "work.h"
#include <stdlib.h>

void grant_request_cancel(struct grant_request *request)
{
    if (request->work)
        request->work->request = NULL;
    request->work = NULL;
}

static void release_results(struct grant_request *request)
{
    grant_unref(request->grant);
    registration_unref(request->registration);
    grant_unref_all(request->grants, request->count);
    grant_unref_all(request->damaged, request->damaged_count);
    attempt_free(request->attempt);
    free(request->issuer);
    request->issuer = NULL;
    request->attempt = NULL;
    request->grant = NULL;
    request->registration = NULL;
    request->grants = request->damaged = NULL;
    request->count = request->damaged_count = 0;
}

void grant_request_release(struct grant_request *request)
{
    grant_request_cancel(request);
    release_results(request);
}
