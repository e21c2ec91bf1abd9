/* NVIDIA's management library, of a machine that says it has one GPU. */
#include <string.h>

static char gpu;

int nvmlInit(void) { return 0; }
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **device) { *device = &gpu; return 0; }
int nvmlDeviceGetName(void *device, char *name, unsigned length)
{
    strncpy(name, "NVIDIA H100", length);
    return 0;
}
