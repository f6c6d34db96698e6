// An intrusive doubly linked list; a zeroed node is in no list.
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include "base/check.h"
#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

#define list_entry(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

// list_each(node, &head) { … }: meanwhile `node` may be removed, but no other one.
#define list_each(n, head) \
    for (struct list *n = (head)->next, *n##_next = n->next; n != (head); n = n##_next, n##_next = n->next)

static inline void list_init(struct list *head) { head->prev = head->next = head; }

static inline bool list_linked(const struct list *node) { return node->next != NULL; }

static inline bool list_empty(const struct list *head) { return head->next == NULL || head->next == head; }

static inline void list_append(struct list *head, struct list *node)
{
    CHECK(!list_linked(node));  // in two lists it would tie them into one that never ends
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void list_remove(struct list *node)
{
    if (!node->next)
        return;
    node->prev->next = node->next;
    node->next->prev = node->prev;
    node->prev = node->next = NULL;
}

// Moves all entries of `from` to `to`, an uninitialized head, in their order.
static inline void list_move_all(struct list *to, struct list *from)
{
    list_init(to);
    while (!list_empty(from)) {
        struct list *node = from->next;
        list_remove(node);
        list_append(to, node);
    }
}

#endif
