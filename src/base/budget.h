// What only base itself does with a hold.
#ifndef BUDGET_H
#define BUDGET_H

#include "base/budget.h"

// Others may use the reserves that it has.
void budget_step_back(struct budget_hold *hold);

#endif
