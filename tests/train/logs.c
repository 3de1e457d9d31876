/* logs.c -- lines of JSON, and event files read back from their format: lengths, masked
 * CRC-32C, and numbers that are those of the progress. */
#define _XOPEN_SOURCE 700

#include <dirent.h>
#include <math.h>
#include <stdio.h>

#include <jansson.h>

#include "support/training.h"

enum { STEPS = 6 };

static int keep(void *user, const foci_progress *p)
{
    ((foci_progress *)user)[p->step] = *p;
    return 0;
}

/* By a table of bytes; its check value is in every catalogue of checksums. */
static uint32_t crc(const unsigned char *p, size_t n)
{
    uint32_t table[256], sum = 0xffffffff;

    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82f63b78 : table[i] >> 1;
    }
    while (n--)
        sum = table[(sum ^ *p++) & 255] ^ sum >> 8;
    return ~sum;
}

static uint64_t little(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = 0; i < n; i++)
        x |= (uint64_t)p[i] << (8 * i);
    return x;
}

static void expect_masked(const unsigned char *p, size_t n, const unsigned char *sum)
{
    const uint32_t c = crc(p, n);
    assert_int_equal((uint32_t)((c >> 15 | c << 17) + 0xa282ead8), little(sum, 4));
}

/* The event "train/loss" of some step has its value behind the tag. */
static int loss_of(const unsigned char *data, size_t n, double *loss)
{
    static const char tag[] = "train/loss";
    int64_t           step = -1;

    if (n < 11 || data[9] != 0x10) return -1; /* wall_time, then step */
    step = data[10];
    for (size_t i = 0; i + sizeof tag + 4 < n + 1; i++) {
        if (memcmp(data + i, tag, sizeof tag - 1) != 0) continue;
        const uint32_t bits = (uint32_t)little(data + i + sizeof tag, 4);
        float          x;
        assert_int_equal(data[i + sizeof tag - 1], 0x15);
        memcpy(&x, &bits, sizeof x);
        *loss = (double)x;
        return (int)step;
    }
    return -1;
}

static void read_events(const char *path, const foci_progress *want)
{
    static unsigned char data[1 << 16];
    FILE                *f = fopen(path, "rb");
    int                  losses = 0, records = 0;

    assert_non_null(f);
    const size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    size_t at = 0;
    for (; at + 12 <= n; records++) {
        const size_t len = (size_t)little(data + at, 8);
        double       loss;
        expect_masked(data + at, 8, data + at + 8);
        assert_true(at + 16 + len <= n);
        expect_masked(data + at + 12, len, data + at + 12 + len);
        const int step = loss_of(data + at + 12, len, &loss);
        if (step > 0) {
            assert_true(loss == (double)(float)want[step].loss);
            losses++;
        }
        at += 16 + len;
    }
    assert_int_equal(at, n);
    assert_int_equal(losses, STEPS);
    assert_true(records > 4 * STEPS);
}

static void read_lines(const char *path, const foci_progress *want)
{
    FILE  *f = fopen(path, "rb");
    char   line[1024];
    int    n = 0, validated = 0;
    double loss;

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_t *o = json_loads(line, 0, NULL);
        assert_non_null(o);
        n++;
        assert_int_equal(json_integer_value(json_object_get(o, "step")), n);
        loss = json_number_value(json_object_get(o, "loss"));
        assert_true(fabs(loss - want[n].loss) < 1e-6);
        validated += json_object_get(o, "valid_loss") != NULL;
        json_decref(o);
    }
    fclose(f);
    assert_int_equal(n, STEPS);
    assert_int_equal(validated, STEPS / 2);
}

static void logs(void **state)
{
    foci_progress   want[STEPS + 1];
    char            folder[64], log[128], path[512];
    struct training t = { .task = "copy(symbols=6, longest=3, test=3, form=row)",
                          .validates = true,
                          .config = training_small("softmax") };
    struct dirent  *entry;

    (void)state;
    assert_int_equal(crc((const unsigned char *)"123456789", 9), 0xe3069283);
    training_folder(folder);
    snprintf(log, sizeof log, "%s.jsonl", folder);
    t.options = (foci_train_options){ .steps = STEPS,
                                      .valid_every = 2,
                                      .log = log,
                                      .events = folder,
                                      .progress = keep,
                                      .user = want };
    training_open(&t, 1);
    training_run(&t);
    training_close(&t);
    read_lines(log, want);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        read_events(path, want);
        *log = '\0';
    }
    closedir(dir);
    assert_true(!*log); /* there was one */
    snprintf(log, sizeof log, "%s.jsonl", folder);
    remove(log);
    training_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(logs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
