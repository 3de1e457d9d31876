/* status.c -- names: statuses, the version, element types. */
#include "core/core.h"

const char *foci_status_text(foci_status status)
{
    switch (status) {
    case FOCI_OK: return "success";
    case FOCI_ERR_ARG: return "bad argument";
    case FOCI_ERR_SPEC: return "bad spec";
    case FOCI_ERR_UNSUP: return "not supported";
    case FOCI_ERR_MEMORY: return "out of memory";
    case FOCI_ERR_DEVICE: return "device failure";
    case FOCI_ERR_FILE: return "file error";
    case FOCI_ERR_FULL: return "pool is full";
    }
    return "unknown status";
}

const char *foci_version(void) { return FOCI_VERSION; }

size_t foci_dtype_bytes(foci_dtype dtype)
{
    switch (dtype) {
    case FOCI_F32: return 4;
    case FOCI_BF16:
    case FOCI_F16: return 2;
    }
    return 0;
}
