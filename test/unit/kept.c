/* SPDX-License-Identifier: PostgreSQL */
/*
 * kept.c: kept connections to two services that have the same local port are
 * not taken for each other.
 *
 * Sources: src/transport/kept.c
 *
 * TAP, exits 1 on failure.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "transport/request.h"

static int	tests;
static int	failures;

static void
claim(int ok, const char *name)
{
	printf("%s %d - %s\n", ok ? "ok" : "not ok", ++tests, name);
	failures += !ok;
}

/* what kept.c needs of its folder */
int64_t
sas_transport_now_us(void)
{
	return 0;
}

long
sas_transport_request_left_ms(const SasRequest *r)
{
	(void) r;
	return 0;
}

static int
bound(const char *ip, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET,.sin_port = htons(port)};
	int			fd = socket(AF_INET, SOCK_STREAM, 0);
	int			on = 1;

	inet_pton(AF_INET, ip, &address.sin_addr);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0 ||
		bind(fd, (struct sockaddr *) &address, sizeof(address)) != 0)
		return -1;
	return fd;
}

static int
port_of(int fd)
{
	struct sockaddr_in address;
	socklen_t	len = sizeof(address);

	return getsockname(fd, (struct sockaddr *) &address, &len) == 0 ? ntohs(address.sin_port) : 0;
}

/* A connection from that local port to a service there, of which *theirs is the other end. */
static int
connected(int local_port, const char *ip, int port, int *theirs)
{
	struct sockaddr_in address = {.sin_family = AF_INET,.sin_port = htons(port)};
	int			listens = bound(ip, port);
	int			fd = bound("127.0.0.1", local_port);

	inet_pton(AF_INET, ip, &address.sin_addr);
	if (listens < 0 || fd < 0 || listen(listens, 1) != 0 || connect(fd, (struct sockaddr *) &address, sizeof(address)) != 0)
		return -1;
	*theirs = accept(listens, NULL, NULL);
	close(listens);
	return fd;
}

static void
send_unasked(int fd, int other)
{
	struct pollfd there = {.fd = other,.events = POLLIN};

	if (write(fd, "x", 1) != 1 || poll(&there, 1, 10000) != 1)
		claim(0, "bytes arrive");
}

int
main(void)
{
	/* ports that are free */
	int			free_fds[2] = {bound("127.0.0.1", 0), bound("127.0.0.2", 0)};
	int			local = port_of(free_fds[0]);
	int			port = port_of(free_fds[1]);
	SasRequest	first = {0};
	SasRequest	second = {0};
	SasRequest	next = {0};
	int			theirs[2];
	int			fds[2];

	close(free_fds[0]);
	close(free_fds[1]);
	fds[0] = connected(local, "127.0.0.2", port, &theirs[0]);
	fds[1] = connected(local, "127.0.0.3", port, &theirs[1]);
	claim(fds[0] > 0 && fds[1] > 0, "two connections have the same local port");
	sas_transport_kept_note(&first, fds[0]);
	sas_transport_kept_note(&second, fds[1]);
	claim(sas_transport_kept_is_clean(&first, local, "127.0.0.2", port) && sas_transport_kept_socket(&first) == fds[0], "the first request has its socket");
	claim(sas_transport_kept_is_clean(&second, local, "127.0.0.3", port) && sas_transport_kept_socket(&second) == fds[1], "and so has the second");

	claim(sas_transport_kept_is_clean(&next, local, "127.0.0.2", port) && sas_transport_kept_socket(&next) == fds[0], "a later request has that of its service");
	send_unasked(theirs[0], fds[0]);
	claim(!sas_transport_kept_is_clean(&next, local, "127.0.0.2", port), "bytes that nobody asked for wait there");
	claim(sas_transport_kept_is_clean(&next, local, "127.0.0.3", port), "not on that of the other one");

	/* its number is used again, by another connection */
	close(fds[0]);
	close(theirs[0]);
	claim(sas_transport_kept_is_clean(&next, local, "127.0.0.2", port) && sas_transport_kept_socket(&next) == -1, "a connection that is not known may be used");
	memset(&first, 0, sizeof(first));
	fds[0] = connected(0, "127.0.0.2", port, &theirs[0]);
	sas_transport_kept_note(&first, fds[0]);
	claim(sas_transport_kept_is_clean(&first, port_of(fds[0]), "127.0.0.2", port) && sas_transport_kept_socket(&first) == fds[0], "a number that is used again is that of the new connection");
	claim(sas_transport_kept_is_clean(&next, local, "127.0.0.3", port) && sas_transport_kept_socket(&next) == fds[1], "and the other one is still known");
	claim(sas_transport_kept_is_clean(&next, local, "0.0.0.0", port) && sas_transport_kept_socket(&next) == fds[1], "0.0.0.0 is what is reached by it");
	printf("1..%d\n", tests);
	return failures > 0;
}
