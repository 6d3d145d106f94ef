/* A program that does not link CANN, but opens the libraries one by one with local visibility. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *function(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    void *found = handle ? dlsym(handle, name) : NULL;
    if (found == NULL) {
        fprintf(stderr, "%s of %s: %s\n", name, library, dlerror());
        exit(2);
    }
    return found;
}

int main(void) {
    int (*initialise)(const char *) = (int (*)(const char *))function("libacl_rt.so", "aclInit");
    int (*set)(int32_t) = (int (*)(int32_t))function("libascendcl.so", "aclrtSetDevice");
    int (*get)(int32_t *) = (int (*)(int32_t *))function("libacl_rt.so", "aclrtGetDevice");
    void *(*array)(const int64_t *, uint64_t) =
        (void *(*)(const int64_t *, uint64_t))function("libopapi.so", "aclCreateIntArray");
    int (*size)(const void *, uint64_t *) =
        (int (*)(const void *, uint64_t *))function("libnnopbase.so", "aclGetIntArraySize");
    const char *(*text)(int) = (const char *(*)(int))function("libhcomm.so", "HcclGetErrorString");
    int64_t values[] = {4, 5, 6};
    int32_t device = -1;
    uint64_t count = 0;
    if (initialise(NULL) != 0 || set(3) != 0 || get(&device) != 0 || device != 3) {
        return 3;
    }
    void *made = array(values, 3);
    if (made == NULL || size(made, &count) != 0 || count != 3 || text(1) == NULL) {
        return 4;
    }
    /* No symbol is visible to the rest of the program. */
    if (dlsym(RTLD_DEFAULT, "aclInit") != NULL) {
        return 5;
    }
    printf("one machine\n");
    return 0;
}
