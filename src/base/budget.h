// Functions on holds for the room base alone.
#ifndef BUDGET_H
#define BUDGET_H

#include "base/budget.h"

// Gives up the reserves of the hold.
void budget_step_back(struct budget_hold *hold);

#endif
