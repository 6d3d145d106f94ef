/* The emulator refuses to run if another libascendcl.so is loaded: beside PATH. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **words) {
    void *other = count == 2 ? dlopen(words[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    void *runtime = dlopen("libacl_rt.so", RTLD_NOW | RTLD_LOCAL);
    if (other == NULL || runtime == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    int (*initialise)(const char *) = (int (*)(const char *))dlsym(runtime, "aclInit");
    const char *(*message)(void) = (const char *(*)(void))dlsym(runtime, "aclGetRecentErrMsg");
    if (initialise == NULL || message == NULL || initialise(NULL) != 500000) {
        return 3;
    }
    if (strstr(message(), "would mix with the emulator") == NULL) {
        return 4;
    }
    printf("refused\n");
    return 0;
}
