/* The listening socket: which addresses are this machine's alone, what the kernel may hold for a connection, a taken port. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "serve/listen.h"
#include "support/check.h"

static void addresses(void **state)
{
    static const struct {
        const char *host;
        int family;
        bool loopback;
    } good[] = {{"127.0.0.1", AF_INET, true}, {"127.9.9.9", AF_INET, true},
                {"localhost", AF_INET, true}, {"0.0.0.0", AF_INET, false},
                {"10.0.0.1", AF_INET, false}, {"::1", AF_INET6, true},
                {"::", AF_INET6, false}};
    static const char *const bad[] = {"", "example.org", "127.0.0", "::g", "127.0.0.1 "};
    pl_address a;
    pl_error err;
    bool loopback;

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        check_ok(pl_listen_parse(good[i].host, 8000, &a, &loopback, &err), &err);
        assert_int_equal(a.any.sa_family, good[i].family);
        assert_int_equal(loopback, good[i].loopback);
        assert_int_equal(ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port), 8000);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        check_error(pl_listen_parse(bad[i], 8000, &a, &loopback, &err), PL_ERR_INVALID, &err,
                    "--host: not a numeric address", NULL);
}

static int buffer(int fd, int which)
{
    int value = 0;
    socklen_t n = sizeof value;

    assert_int_equal(getsockopt(fd, SOL_SOCKET, which, &value, &n), 0);
    return value;
}

static void buffers_are_bounded_and_a_port_is_taken_once(void **state)
{
    pl_address a, bound;
    socklen_t n = sizeof bound;
    int listening, second, client, served;
    pl_error err;
    bool loopback;

    (void)state;
    check_ok(pl_listen_parse("127.0.0.1", 0, &a, &loopback, &err), &err);
    check_ok(pl_listen_open(&a, "127.0.0.1", &listening, &err), &err);
    assert_int_equal(getsockname(listening, &bound.any, &n), 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, &bound.any, n), 0);
    served = accept(listening, NULL, NULL);
    assert_true(served >= 0);
    assert_int_equal(buffer(served, SO_RCVBUF) + buffer(served, SO_SNDBUF),
                     PL_LISTEN_CHARGED_BYTES);
    check_error(pl_listen_open(&bound, "127.0.0.1", &second, &err), PL_ERR_IO, &err,
                "server: cannot serve on 127.0.0.1 port ", "Address already in use", NULL);
    assert_int_equal(second, -1);
    close(served);
    close(client);
    close(listening);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(buffers_are_bounded_and_a_port_is_taken_once),
    };

    return cmocka_run_group_tests_name("listen", tests, NULL, NULL);
}
