// A part of the JSON scanner, for its tests.
#ifndef SCAN_H
#define SCAN_H

#include "base/scan.h"

bool scan_string(struct scan *scan, struct span *raw) MUST_CHECK;  // raw keeps its quotes

#endif
