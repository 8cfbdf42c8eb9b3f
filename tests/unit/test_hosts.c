// SPDX-License-Identifier: Apache-2.0
//
// workerd/collective/hosts.c: who is on which host, written out by hand.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "workerd/collective/hosts.h"

static void expect(const char *const *name, uint32_t workers, uint32_t self, struct wk_hosts want)
{
    const struct wk_hosts got = wk_hosts_find(name, workers, self);
    assert_int_equal(want.hosts, got.hosts);
    assert_int_equal(want.host, got.host);
    assert_int_equal(want.members, got.members);
    assert_int_equal(want.member, got.member);
    assert_int_equal(want.first, got.first);
}

// a: 0, 2, 5; b: 1, 4; worker 3 alone. The hosts' first workers are 0, 1 and 3.
static void workers_of_a_host_have_its_first_one(void **ctx)
{
    static const char *const name[] = {"a", "b", "a", "", "b", "a"};
    (void)ctx;
    expect(name, 6, 0, (struct wk_hosts){3, 0, 3, 0, 0});
    expect(name, 6, 1, (struct wk_hosts){3, 1, 2, 0, 1});
    expect(name, 6, 2, (struct wk_hosts){3, 0, 3, 1, 0});
    expect(name, 6, 3, (struct wk_hosts){3, 2, 1, 0, 3});
    expect(name, 6, 4, (struct wk_hosts){3, 1, 2, 1, 1});
    expect(name, 6, 5, (struct wk_hosts){3, 0, 3, 2, 0});
    for (uint32_t self = 0; self < 6; self += self ? 3 : 2) {
        assert_int_equal(0, wk_hosts_member(name, self, 0));
        assert_int_equal(2, wk_hosts_member(name, self, 1));
        assert_int_equal(5, wk_hosts_member(name, self, 2));
    }
    assert_int_equal(4, wk_hosts_member(name, 1, 1));
    assert_int_equal(0, wk_hosts_first(name, 0));
    assert_int_equal(1, wk_hosts_first(name, 1));
    assert_int_equal(3, wk_hosts_first(name, 2));
}

// No name is no host that is shared.
static void workers_without_a_name_are_alone(void **ctx)
{
    static const char *const name[] = {"", "", ""};
    (void)ctx;
    expect(name, 3, 0, (struct wk_hosts){3, 0, 1, 0, 0});
    expect(name, 3, 2, (struct wk_hosts){3, 2, 1, 0, 2});
    assert_int_equal(2, wk_hosts_member(name, 2, 0));
}

static void one_host_is_alone(void **ctx)
{
    static const char *const name[] = {"a", "a"};
    (void)ctx;
    expect(name, 2, 1, (struct wk_hosts){1, 0, 2, 1, 0});
    expect(name, 1, 0, (struct wk_hosts){1, 0, 1, 0, 0});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_of_a_host_have_its_first_one),
        cmocka_unit_test(workers_without_a_name_are_alone),
        cmocka_unit_test(one_host_is_alone),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
