// Owns tenants.d: which files count, in which order, and that each tenant is defined only once.
//
// A file has the content that tenants.NAME would have in the configuration, and its paths mean the same. Write access
// to a file is control of its tenant. One invalid file stops the start of the gateway, so that no tenant is silently
// missing.
#include "tenants_d.h"
#include "base/mem.h"
#include "config/config.h"
#include "text_file.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>

#define SUFFIX ".json"

static int is_tenant_file(const struct dirent *file)
{
    size_t len = strlen(file->d_name), suffix = strlen(SUFFIX);
    return file->d_name[0] != '.' && len > suffix && strcmp(file->d_name + len - suffix, SUFFIX) == 0;
}

// By bytes, so that the order does not depend on the locale.
static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static const struct config_tenant *find(const struct option_items *tenants, const char *name)
{
    const struct config_tenant *all = tenants->at;
    for (size_t i = 0; i < tenants->count; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

// A new entry at the end; the configuration owns it.
static struct config_tenant *append(struct option_items *tenants, const char *name)
{
    tenants->at = mem_resize(tenants->at, (tenants->count + 1) * sizeof(struct config_tenant));
    struct config_tenant *tenant = (struct config_tenant *)tenants->at + tenants->count++;
    *tenant = (struct config_tenant){.name = mem_string(name)};
    return tenant;
}

static bool read_tenant(struct text_file *file, struct option_items *tenants, const struct option_table *options,
                        const struct option_place *place, const char *name, struct err *err)
{
    if (find(tenants, name))
        return err_set(err, ERR_CONFIG, "%s: /: tenant \"%s\" is in the configuration already, at /tenants/%s",
                       file->path, name, name);
    return text_file_read(file, options, append(tenants, name), place, err);
}

static bool read_file(struct option_items *tenants, const struct option_table *options,
                      const struct option_place *place, const char *entry, struct err *err)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", place->file, entry);
    struct text_file file = {.path = buf_text(&path)};
    char *name = mem_copy(entry, strlen(entry) - strlen(SUFFIX));
    bool ok = read_tenant(&file, tenants, options, place, name, err);
    text_file_close(&file, place->problems, err);
    free(name);
    buf_release(&path);
    return ok;
}

bool tenants_d_read(struct option_items *tenants, const struct option_table *options, const struct option_place *place,
                    struct err *err)
{
    struct dirent **files = NULL;
    int count = scandir(place->file, &files, is_tenant_file, by_name);
    if (count < 0)
        return errno == ENOENT || err_set(err, ERR_CONFIG, "%s: %s", place->file, strerror(errno));
    bool ok = true;
    for (int i = 0; i < count; i++) {
        ok = read_file(tenants, options, place, files[i]->d_name, err) && ok;
        free(files[i]);
    }
    free(files);
    return ok;
}
