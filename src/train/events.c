/* events.c -- event files as TensorBoard reads them.
 *
 * A file is a row of records:
 *
 *     length (8 bytes, least first), masked checksum of it, data, masked checksum of it
 *
 * where the checksum is CRC-32C (Castagnoli) and masking is ((crc >> 15 | crc << 17) +
 * 0xa282ead8).  The data is a protobuf message Event: wall_time = 1 (double), step = 2,
 * file_version = 3 in the first record, or summary = 5 with one value = 1 of tag = 1 and
 * simple_value = 2 (float). */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "train/trainer.h"

struct events {
    foci_ctx *ctx;
    FILE     *file;
    char      path[FOLDER_PATH];
};

/* Room for one event. */
struct message {
    unsigned char bytes[512];
    size_t        n;
};

static uint32_t crc32c(const unsigned char *p, size_t n)
{
    uint32_t crc = ~UINT32_C(0);

    for (; n; n--, p++) {
        crc ^= *p;
        for (int i = 0; i < 8; i++)
            crc = crc >> 1 ^ (UINT32_C(0x82f63b78) & (uint32_t) - (int32_t)(crc & 1));
    }
    return ~crc;
}

static uint32_t masked(const unsigned char *p, size_t n)
{
    const uint32_t crc = crc32c(p, n);
    return (crc >> 15 | crc << 17) + UINT32_C(0xa282ead8);
}

static void put_fixed(struct message *m, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        m->bytes[m->n++] = (unsigned char)(x >> (8 * i));
}

static void put_varint(struct message *m, uint64_t x)
{
    for (; x > 127; x >>= 7)
        m->bytes[m->n++] = (unsigned char)(x | 128);
    m->bytes[m->n++] = (unsigned char)x;
}

/* A field's number and how it is written: 0 varint, 1 eight bytes, 2 a length and bytes,
 * 5 four bytes. */
static void put_key(struct message *m, int field, int how)
{
    put_varint(m, (uint64_t)(field << 3 | how));
}

static void put_bytes(struct message *m, int field, const void *data, size_t n)
{
    put_key(m, field, 2);
    put_varint(m, n);
    memcpy(m->bytes + m->n, data, n);
    m->n += n;
}

static void put_double(struct message *m, int field, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, 1);
    put_fixed(m, bits, 8);
}

static void put_float(struct message *m, int field, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, 5);
    put_fixed(m, bits, 4);
}

static void put_time(struct message *m)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    put_double(m, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
}

static foci_status put_record(struct events *e, const struct message *m)
{
    struct message head = { .n = 0 }, tail = { .n = 0 };

    put_fixed(&head, m->n, 8);
    put_fixed(&head, masked(head.bytes, 8), 4);
    put_fixed(&tail, masked(m->bytes, m->n), 4);
    if (fwrite(head.bytes, 1, head.n, e->file) == head.n &&
        fwrite(m->bytes, 1, m->n, e->file) == m->n &&
        fwrite(tail.bytes, 1, tail.n, e->file) == tail.n)
        return FOCI_OK;
    return file_fail(e->ctx, e->path, "cannot be written: %s", strerror(errno));
}

static foci_status open_file(struct events *e, const char *folder)
{
    static const char version[] = "brain.Event:2";
    char              host[64] = "", name[192];
    struct message    m = { .n = 0 };

    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "events.out.tfevents.%lld.%s.%ld",
             (long long)time(NULL), host, (long)getpid());
    TRY(folder_make(e->ctx, folder));
    TRY(folder_path(e->ctx, folder, name, e->path));
    e->file = fopen(e->path, "ab");
    if (!e->file)
        return file_fail(e->ctx, e->path, "cannot be made: %s", strerror(errno));
    put_time(&m);
    put_bytes(&m, 3, version, sizeof version - 1);
    return put_record(e, &m);
}

foci_status events_open(foci_ctx *ctx, const char *folder, struct events **events)
{
    struct events *e = ctx_alloc(ctx, 1, sizeof *e);

    *events = e;
    if (!e) return FOCI_ERR_MEMORY;
    e->ctx = ctx;
    const foci_status status = open_file(e, folder);
    if (!status) return FOCI_OK;
    events_close(e);
    *events = NULL;
    return status;
}

foci_status events_add(struct events *e, int64_t step, const char *name, double value)
{
    struct message m = { .n = 0 }, scalar = { .n = 0 }, summary = { .n = 0 };

    put_bytes(&scalar, 1, name, strlen(name));
    put_float(&scalar, 2, (float)value);
    put_bytes(&summary, 1, scalar.bytes, scalar.n);
    put_time(&m);
    put_key(&m, 2, 0);
    put_varint(&m, (uint64_t)step);
    put_bytes(&m, 5, summary.bytes, summary.n);
    return put_record(e, &m);
}

foci_status events_flush(struct events *e)
{
    if (fflush(e->file) == 0) return FOCI_OK;
    return file_fail(e->ctx, e->path, "cannot be written: %s", strerror(errno));
}

void events_close(struct events *e)
{
    if (!e) return;
    if (e->file) fclose(e->file);
    ctx_free(e->ctx, e, 1, sizeof *e);
}
