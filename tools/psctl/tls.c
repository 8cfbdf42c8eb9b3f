// SPDX-License-Identifier: Apache-2.0
//
// psctl tls: makes the certificates with which the processes of a cluster know each other, and looks at them.
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/tls/tls.h"
#include "tools/common/table.h"
#include "tools/psctl/authority.h"
#include "tools/psctl/operand.h"
#include "tools/psctl/psctl.h"

enum { TLS_DAYS = 365, TLS_DAY = 24 * 3600 };

struct tls_call {
    struct call *call;
    const char *folder, *user, *output;
    long days;
};

// ---- init, issue --------------------------------------------------------------------------------------------------

static const char *tls_login(void)
{
    const struct passwd *p = getpwuid(geteuid());
    return p && ps_user_is_plain(p->pw_name) ? p->pw_name : "nobody";
}

static enum ps_code tls_make(const struct tls_call *t, const struct authority *a, enum ps_role role, const char *user,
                             struct ps_error *e)
{
    char *path = t->output ? ps_strdup(t->output) : ps_printf("%s/%s.pem", t->folder, ps_role_name(role));
    const int64_t asked = t->days ? t->days : TLS_DAYS;
    const int64_t left = (authority_until(a) - (int64_t)time(NULL) + TLS_DAY - 1) / TLS_DAY;  // one that has begun, too
    const int days = (int)(left < asked ? left : asked);
    const bool shows = !operand_is_stdout(path);
    e->code = PS_OK;
    if (days <= 0)
        ps_fail(e, PS_FAILED_PRECONDITION, "%s/ca.key: its authority has expired: make another one", t->folder);
    else if (authority_issue(a, role, user, days, path, e) == PS_OK && shows)
        printf("%s: %s, user %s, for %d days\n", path, ps_role_name(role), user, days);
    if (!e->code && left < asked)
        fprintf(stderr, "psctl: %s ends with its authority, and not in %" PRId64 " days\n", path, asked);
    free(path);
    return e->code;
}

static int tls_init(const struct tls_call *t)
{
    const char *user = t->user ? t->user : tls_login();
    struct authority *a = NULL;
    struct ps_error e = {.code = PS_OK};
    if (t->call->argc != 2 || t->output)
        return call_wrong(t->call, "init takes a folder, --user and --days");
    if (authority_create(t->folder, &a, &e) == PS_OK) {
        printf("%s/ca.pem, ca.key: the authority, for %d days\n", t->folder, AUTHORITY_DAYS);
        if (tls_make(t, a, PS_ROLE_PSD, "psd", &e) == PS_OK && tls_make(t, a, PS_ROLE_WORKER, user, &e) == PS_OK)
            tls_make(t, a, PS_ROLE_ADMIN, user, &e);
    }
    authority_close(a);
    if (e.code)
        return call_report(&e);
    printf("\nEach node gets ca.pem and the file of its role, readable by its service alone; ca.key stays here.\n"
           "Clusters name the folder: \"tls: FOLDER\" in their YAML file, or --tls FOLDER.\n");
    return 0;
}

// The certificate that gives way: the next one is of the same user, who may have processes that run.
static void tls_read_before(const struct tls_call *t, enum ps_role role, struct certificate *before)
{
    char *path = t->output ? ps_strdup(t->output) : ps_printf("%s/%s.pem", t->folder, ps_role_name(role));
    struct ps_error e;
    struct stat st;
    const bool is_file = stat(path, &st) == 0 && S_ISREG(st.st_mode);  // what is read from a pipe is gone
    if (!is_file || certificate_read(path, NULL, before, &e) || !ps_user_is_plain(before->user))
        *before = (struct certificate){.roles = 0};
    free(path);
}

static int tls_issue(const struct tls_call *t)
{
    struct authority *a = NULL;
    struct ps_error e = {.code = PS_OK};
    const enum ps_role role = t->call->argc == 3 ? ps_role_find(t->call->argv[2]) : 0;
    if (!role)
        return call_wrong(t->call, "issue takes a folder and a role: expected psd, worker or admin");
    struct certificate before;
    tls_read_before(t, role, &before);
    const char *user = t->user ? t->user : before.user[0] ? before.user : role == PS_ROLE_PSD ? "psd" : tls_login();
    if (authority_open(t->folder, &a, &e) == PS_OK)
        tls_make(t, a, role, user, &e);
    authority_close(a);
    return e.code ? call_report(&e) : 0;
}

// ---- show ---------------------------------------------------------------------------------------------------------

static const struct table_column columns[] = {
    {"file", "file", TABLE_TEXT},   {"role", "role", TABLE_TEXT},       {"user", "user", TABLE_TEXT},
    {"until", "until", TABLE_TEXT}, {"days", "days left", TABLE_COUNT}, {"verdict", "verdict", TABLE_SENTENCE},
};

static void tls_row(struct table *table, const char *path, const struct certificate *c, const char *verdict)
{
    char until[32] = "", roles[PS_ROLES_TEXT] = "authority";
    const time_t end = (time_t)c->until;
    struct tm tm;
    if (c->until && gmtime_r(&end, &tm))
        strftime(until, sizeof until, "%Y-%m-%d", &tm);
    if (!c->is_authority)
        ps_roles_text(c->roles, roles);
    const int64_t left = (c->until - (int64_t)time(NULL)) / TLS_DAY;
    table_row(table);
    table_cell(table, table_text(path));
    table_cell(table, c->until ? table_text(roles) : NULL);
    table_cell(table, table_text(c->user));
    table_cell(table, table_text(until));
    table_cell(table, c->until ? json_integer(left) : NULL);
    table_cell(table, table_text(verdict));
}

static bool tls_ends_soon(int64_t until)
{
    return until < (int64_t)time(NULL) + PS_TLS_SOON_DAYS * TLS_DAY;
}

// last: when the last of the authorities ends. One that ends before another is well: what it has signed is judged.
static const char *tls_judge_authority(const struct certificate *c, int64_t last, struct ps_error *e)
{
    const char *ends = c->until < (int64_t)time(NULL) ? "has expired" : "expires soon";
    e->code = PS_OK;
    if (!c->is_authority)
        ps_fail(e, PS_FAILED_PRECONDITION, "is no authority's certificate");
    else if (tls_ends_soon(c->until) && c->until == last)
        ps_fail(e, PS_FAILED_PRECONDITION, "%s: let ca.pem hold the next one, too, before you issue certificates of it",
                ends);
    return e->code ? e->text : tls_ends_soon(c->until) ? ends : "good";
}

// The exit code that its file is worth.
static int tls_show_authorities(const struct tls_call *t, struct table *table)
{
    char *path = ps_printf("%s/ca.pem", t->folder);
    struct certificate *v;
    struct ps_error e = {.code = PS_OK};
    int64_t last = 0;
    size_t n;
    if (certificate_read_all(path, &v, &n, &e))
        tls_row(table, path, &(struct certificate){.is_authority = true}, e.text);
    int exit_code = e.code ? ps_code_exit(e.code) : 0;
    for (size_t i = 0; i < n; i++)
        last = v[i].is_authority && v[i].until > last ? v[i].until : last;
    for (size_t i = 0; i < n; i++) {
        tls_row(table, path, &v[i], tls_judge_authority(&v[i], last, &e));
        exit_code = exit_code || !e.code ? exit_code : ps_code_exit(e.code);
    }
    free(v);
    free(path);
    return exit_code;
}

// It holds for as long as its authority does, which is what is shown then.
static void tls_judge_end(const struct tls_call *t, enum ps_role role, struct certificate *c, struct ps_error *e)
{
    const bool by_authority = c->signed_until && c->signed_until <= c->until;
    if (by_authority)
        c->until = c->signed_until;
    if (e->code || !tls_ends_soon(c->until))
        return;
    if (by_authority)
        ps_fail(e, PS_FAILED_PRECONDITION, "expires soon with its authority: issue a new one of the next authority");
    else
        ps_fail(e, PS_FAILED_PRECONDITION, "expires soon: psctl tls issue %s %s makes a new one", t->folder,
                ps_role_name(role));
}

static int tls_show_role(const struct tls_call *t, enum ps_role role, struct table *table)
{
    char *path = ps_printf("%s/%s.pem", t->folder, ps_role_name(role)), *ca = ps_printf("%s/ca.pem", t->folder);
    const struct ps_tls_files files = {.folder = (char *)t->folder};
    struct certificate c = {.roles = 0};
    struct ps_error e = {.code = PS_OK};
    struct ps_tls *tls = NULL;
    const bool there = access(path, F_OK) == 0;
    if (there && ps_tls_open(&files, role, &tls, &e) == PS_OK)
        ps_tls_close(tls);
    struct ps_error unread;
    if (there && certificate_read(path, ca, &c, &unread) && !e.code)
        e = unread;
    if (there) {
        tls_judge_end(t, role, &c, &e);
        tls_row(table, path, &c, e.code ? e.text : "good");
    }
    free(path);
    free(ca);
    return e.code ? ps_code_exit(e.code) : 0;
}

static int tls_show_all(const struct tls_call *t)
{
    struct table table;
    if (t->call->argc != 2 || t->output || t->user || t->days)
        return call_wrong(t->call, "show takes a folder alone");
    table_init(&table, columns, sizeof columns / sizeof columns[0]);
    int exit_code = tls_show_authorities(t, &table);
    for (unsigned role = 1; role < PS_ROLE_ALL; role <<= 1) {
        const int one = tls_show_role(t, (enum ps_role)role, &table);
        exit_code = exit_code ? exit_code : one;
    }
    table_show(&(struct table_part){"certificates", &table, false}, 1, t->call->target.json, stdout);
    table_fini(&table);
    return exit_code;
}

int command_tls(struct call *call)
{
    struct tls_call t = {.call = call};
    const struct cli_option options[] = {{.name = "user", .text = &t.user},
                                         {.name = "days", .number = &t.days, .min = 1, .max = AUTHORITY_DAYS},
                                         {.name = "output", .letter = 'o', .text = &t.output},
                                         {.name = "json", .flag = &call->target.json}};
    int exit_code;
    if (!call_parse(call, options, sizeof options / sizeof options[0], &exit_code))
        return exit_code;
    t.folder = call->argv[1];
    if (t.user && !ps_user_is_plain(t.user))
        return call_wrong(call, "--user: expected 1 to %d bytes that a terminal can show", PS_USER_MAX);
    if (call->target.json && strcmp(call->argv[0], "show") != 0)
        return call_wrong(call, "--json: expected show, which alone writes a table");
    if (strcmp(call->argv[0], "init") == 0)
        return tls_init(&t);
    if (strcmp(call->argv[0], "issue") == 0)
        return tls_issue(&t);
    if (strcmp(call->argv[0], "show") == 0)
        return tls_show_all(&t);
    return call_wrong(call, "%s: expected init, issue or show", call->argv[0]);
}
