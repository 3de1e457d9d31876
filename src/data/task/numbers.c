/* numbers.c -- numbers spelled out in English, to be spelled out in another language.
 *
 *     two thousand twenty-one    zweitausendeinundzwanzig    hai nghìn không trăm hai mươi mốt
 *
 * The number of digits is uniform from 1 to `digits`, then the number is uniform among
 * those with as many.  Splits share no number: one goes to the test split where a hash of it
 * is 0 modulo 10, to the validation where it is 1, and is drawn anew elsewhere.  Tokens are
 * the parts that numbers are made of (ein-und-zwanzig), or characters.
 */
#include <stdio.h>
#include <string.h>

#include "data/task/task.h"

enum { TO, DIGITS, TOKENS };
enum { GERMAN, VIETNAMESE };
enum { PARTS, CHARS };
enum { BOS = 1, EOS, FIRST };

static const foci_arg_def args[] = {
    { .name = "to", .choices = "de|vi", .help = "German or Vietnamese" },
    { .name = "digits", .preset = 6, .min = 2, .max = 6, .help = "at most" },
    { .name = "tokens",
      .choices = "parts|chars",
      .help = "parts that numbers are made of, or characters" },
};

static const char *const slices[] = { "digits", "place", NULL };

/*
 * Languages: words, and a number as words.  In each list those of 0 to 9 come first.
 */

enum { MOST_PARTS = 16 };

struct parts {
    int n;
    int at[MOST_PARTS];
};

static void say(struct parts *p, int word) { p->at[p->n++] = word; }

enum { EN_TENS = 20, EN_HUNDRED = 28, EN_THOUSAND };
static const char *const english[] = {
    "zero",     "one",      "two",      "three",   "four",    "five",
    "six",      "seven",    "eight",    "nine",    "ten",     "eleven",
    "twelve",   "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
    "eighteen", "nineteen", "twenty",   "thirty",  "forty",   "fifty",
    "sixty",    "seventy",  "eighty",   "ninety",  "hundred", "thousand"
};

static void english_group(struct parts *p, int n)
{
    if (n >= 100) {
        say(p, n / 100);
        say(p, EN_HUNDRED);
        n %= 100;
    }
    if (n >= 20) {
        say(p, EN_TENS + n / 10 - 2);
        n %= 10;
    }
    if (n) say(p, n);
}

static void spell_english(struct parts *p, int n)
{
    if (n >= 1000) {
        english_group(p, n / 1000);
        say(p, EN_THOUSAND);
    }
    english_group(p, n % 1000);
    if (!n) say(p, 0);
}

enum { DE_TENS = 20, DE_HUNDRED = 28, DE_THOUSAND, DE_AND, DE_ONE };
static const char *const german[] = {
    "null",     "eins",     "zwei",     "drei",     "vier",     "fünf",     "sechs",
    "sieben",   "acht",     "neun",     "zehn",     "elf",      "zwölf",    "dreizehn",
    "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn", "zwanzig",
    "dreißig",  "vierzig",  "fünfzig",  "sechzig",  "siebzig",  "achtzig",  "neunzig",
    "hundert",  "tausend",  "und",      "ein"
};

/* A one that nothing follows is "eins". */
static void german_group(struct parts *p, int n, bool last)
{
    if (n >= 100) {
        say(p, n / 100 == 1 ? DE_ONE : n / 100);
        say(p, DE_HUNDRED);
        n %= 100;
    }
    if (n >= 20) {
        if (n % 10) {
            say(p, n % 10 == 1 ? DE_ONE : n % 10);
            say(p, DE_AND);
        }
        say(p, DE_TENS + n / 10 - 2);
    } else if (n) {
        say(p, n == 1 && !last ? DE_ONE : n);
    }
}

static void spell_german(struct parts *p, int n)
{
    if (n >= 1000) {
        german_group(p, n / 1000, false);
        say(p, DE_THOUSAND);
    }
    german_group(p, n % 1000, true);
    if (!n) say(p, 0);
}

enum {
    VI_TEN = 10,
    VI_TENS,
    VI_ONE,
    VI_FOUR,
    VI_FIVE,
    VI_AND,
    VI_HUNDRED,
    VI_THOUSAND
};
static const char *const vietnamese[] = {
    "không", "một",  "hai",  "ba",  "bốn", "năm", "sáu",  "bảy",  "tám",
    "chín",  "mười", "mươi", "mốt", "tư",  "lăm", "linh", "trăm", "nghìn"
};

/* With `whole` hundreds are said where there are none: a group before this one was said. */
static void vietnamese_group(struct parts *p, int n, bool whole)
{
    const int ten = n / 10 % 10, one = n % 10;

    if (n >= 100 || whole) {
        say(p, n / 100);
        say(p, VI_HUNDRED);
    }
    if (ten > 1) say(p, ten);
    if (ten) say(p, ten > 1 ? VI_TENS : VI_TEN);
    if (!ten && one && (n >= 100 || whole)) say(p, VI_AND);
    if (one)
        say(p, one == 1 && ten > 1   ? VI_ONE
               : one == 4 && ten > 1 ? VI_FOUR
               : one == 5 && ten     ? VI_FIVE
                                     : one);
}

static void spell_vietnamese(struct parts *p, int n)
{
    if (n >= 1000) {
        vietnamese_group(p, n / 1000, false);
        say(p, VI_THOUSAND);
    }
    if (n % 1000) vietnamese_group(p, n % 1000, n >= 1000);
    if (!n) say(p, 0);
}

struct language {
    const char *const *words;
    int                n_words;
    void (*spell)(struct parts *p, int n);
};

#define LANGUAGE(name)                                                                 \
    {                                                                                  \
        name, sizeof name / sizeof *name, spell_##name                                 \
    }

static struct language language_of(const struct task *t, int side)
{
    static const struct language languages[] = { LANGUAGE(german), LANGUAGE(vietnamese),
                                                 LANGUAGE(english) };
    return languages[side ? 2 : (int)t->arg[TO]];
}

/* What stands between two words. */
static const char *gap(const struct task *t, int side, int a, int b)
{
    if (!side) return t->arg[TO] == GERMAN ? "" : " ";
    return a >= EN_TENS && a < EN_HUNDRED && b < 10 ? "-" : " ";
}

/*
 * Characters: those of all words and gaps of a language, in order.
 */

enum { MOST_CHARS = 64 };

struct alphabet {
    int      n;
    uint32_t at[MOST_CHARS];
};

/* The code point at *s, which is moved behind it; our own words are UTF-8. */
static uint32_t next_char(const char **s)
{
    const unsigned char first = (unsigned char)*(*s)++;
    uint32_t            c = first;

    if (first >= 0xc0) {
        c = first & (first < 0xe0 ? 0x1fu : 0xfu);
        while (((unsigned char)**s & 0xc0) == 0x80)
            c = c << 6 | ((unsigned char)*(*s)++ & 0x3fu);
    }
    return c;
}

static void add_chars(struct alphabet *a, const char *text)
{
    while (*text) {
        const uint32_t c = next_char(&text);
        int            i = 0;
        while (i < a->n && a->at[i] < c)
            i++;
        if (i < a->n && a->at[i] == c) continue;
        memmove(a->at + i + 1, a->at + i, (size_t)(a->n - i) * sizeof *a->at);
        a->at[i] = c;
        a->n++;
    }
}

static struct alphabet alphabet_of(const struct task *t, int side)
{
    const struct language l = language_of(t, side);
    struct alphabet       a = { 0 };

    for (int w = 0; w < l.n_words; w++)
        add_chars(&a, l.words[w]);
    add_chars(&a, side ? " -" : gap(t, side, 0, 0));
    return a;
}

/* The table: how many characters the target has, then those, then those of the source. */
static void numbers_fill(const struct task *t, double *table)
{
    const struct alphabet target = alphabet_of(t, 0), source = alphabet_of(t, 1);

    table[0] = target.n;
    for (int i = 0; i < target.n; i++)
        table[1 + i] = target.at[i];
    for (int i = 0; i < source.n; i++)
        table[1 + target.n + i] = source.at[i];
}

static uint32_t char_of(const struct task *t, int side, int32_t id)
{
    return (uint32_t)t->table[1 + (side ? (int)t->table[0] : 0) + id - FIRST];
}

static int32_t id_of(const struct task *t, int side, uint32_t c)
{
    int32_t id = FIRST;
    while (char_of(t, side, id) != c)
        id++;
    return id;
}

static int64_t put_chars(const struct task *t, int side, const char *text, int32_t *ids)
{
    int64_t n = 0;

    while (*text) {
        const uint32_t c = next_char(&text);
        if (ids) ids[n] = id_of(t, side, c);
        n++;
    }
    return n;
}

/*
 * The generator
 */

/* A number as tokens; the result is how many.  ids NULL: they are counted. */
static int64_t spell(const struct task *t, int side, int number, int32_t *ids)
{
    const struct language l = language_of(t, side);
    struct parts          p = { 0 };
    int64_t               n = 0;

    l.spell(&p, number);
    for (int i = 0; i < p.n; i++) {
        if (t->arg[TOKENS] == PARTS) {
            if (ids) ids[n] = FIRST + p.at[i];
            n++;
            continue;
        }
        if (i)
            n += put_chars(t, side, gap(t, side, p.at[i - 1], p.at[i]),
                           ids ? ids + n : NULL);
        n += put_chars(t, side, l.words[p.at[i]], ids ? ids + n : NULL);
    }
    return n;
}

/* Tokens of the longest number: what is before the thousand and after it go together. */
static int64_t longest(const struct task *t, int side)
{
    const bool    thousands = t->arg[DIGITS] > 3;
    const int     end = t->arg[DIGITS] < 3 ? 100 : 1000;
    const int64_t thousand = spell(t, side, 1000, NULL);
    int64_t       before = 0, behind = 0;

    for (int n = 0; n < end; n++) {
        before = max64(before, spell(t, side, thousands ? 1000 * n : n, NULL));
        behind = max64(behind, spell(t, side, 1000 + n, NULL) - thousand);
    }
    return before + (thousands ? behind : 0);
}

static const char *plan(struct task *t)
{
    const bool chars = t->arg[TOKENS] == CHARS;
    const int  target = chars ? alphabet_of(t, 0).n : language_of(t, 0).n_words;
    const int  source = chars ? alphabet_of(t, 1).n : language_of(t, 1).n_words;

    t->kind = FOCI_DATA_TRANSLATE;
    t->causal = true;
    t->vocab = FIRST + target;
    t->source_vocab = FIRST + source;
    t->chance = 1.0 / (1 + target); /* the end can be guessed too */
    t->n_table = chars ? 1 + target + source : 0;
    t->len = longest(t, 0) + 1;
    t->source_len = longest(t, 1) + 1;
    return NULL;
}

static foci_data_split split_of(int64_t number)
{
    const uint64_t share = rng_absorb((uint64_t)number, 1) % 10;

    return share == 0   ? FOCI_DATA_SPLIT_TEST
           : share == 1 ? FOCI_DATA_SPLIT_VALID
                        : FOCI_DATA_SPLIT_TRAIN;
}

static void make(const struct task *t, struct rng *r, foci_data_split split,
                 struct task_example *e)
{
    int64_t digits, number;

    do {
        int64_t least = 1;
        digits = 1 + rng_below(r, task_int(t, DIGITS));
        for (int64_t i = 1; i < digits; i++)
            least *= 10;
        if (digits == 1)
            number = rng_below(r, 10);
        else
            number = least + rng_below(r, 9 * least);
    } while (split_of(number) != split);

    e->n_source = spell(t, 1, (int)number, e->source);
    e->source[e->n_source++] = EOS;
    const int64_t n = spell(t, 0, (int)number, e->ids + 1);
    e->ids[0] = BOS;
    e->n = n + 1;
    for (int64_t i = 0; i <= n; i++) {
        e->labels[i] = i < n ? e->ids[i + 1] : EOS;
        e->slices[i] = (int32_t)digits;
        e->slices[t->len + i] = (int32_t)i;
    }
}

static int put_utf8(uint32_t c, char *text, size_t cap)
{
    char bytes[4] = { 0 };

    if (c < 0x80) {
        bytes[0] = (char)c;
    } else if (c < 0x800) {
        bytes[0] = (char)(0xc0 | c >> 6);
        bytes[1] = (char)(0x80 | (c & 0x3f));
    } else {
        bytes[0] = (char)(0xe0 | c >> 12);
        bytes[1] = (char)(0x80 | (c >> 6 & 0x3f));
        bytes[2] = (char)(0x80 | (c & 0x3f));
    }
    return snprintf(text, cap, "%s", bytes);
}

static int symbol(const struct task *t, int side, int32_t id, char *text, size_t cap)
{
    if (id < FIRST) return snprintf(text, cap, "%s", "");
    if (t->arg[TOKENS] == CHARS) return put_utf8(char_of(t, side, id), text, cap);
    return snprintf(text, cap, "%s", language_of(t, side).words[id - FIRST]);
}

static const char *between(const struct task *t, int side, int32_t a, int32_t b)
{
    if (t->arg[TOKENS] == CHARS) return "";
    return gap(t, side, a - FIRST, b - FIRST);
}

/*
 * Rules
 */

static int64_t token_before(const struct task *t, const struct task_example *e,
                            int64_t at)
{
    (void)t;
    return e->ids[at];
}

static int64_t place(const struct task *t, const struct task_example *e, int64_t at)
{
    (void)t;
    (void)e;
    return at;
}

static const struct task_rule rules[] = {
    { "place", true, place },
    { "token before", true, token_before },
};

const struct task_def task_numbers = {
    .name = "numbers",
    .summary = "translate spelled-out numbers from English",
    .source = "folklore",
    .version = 1,
    .args = args,
    .n_args = sizeof args / sizeof *args,
    .slices = slices,
    .plan = plan,
    .fill = numbers_fill,
    .make = make,
    .symbol = symbol,
    .between = between,
    .rules = rules,
    .n_rules = sizeof rules / sizeof *rules,
    .preset = "--layers 2 --dim 128 --heads 4 --dropout 0 --smoothing 0 "
              "--batch 64 --lr 0.002 --dtype bf16 --steps 1000",
};
