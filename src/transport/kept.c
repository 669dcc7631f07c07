/* SPDX-License-Identifier: PostgreSQL */
/*
 * kept.c: an answer without a request is not taken for that of the next one.
 *
 * A service may send a second answer on a connection that is kept, after the first was read.
 * libcurl before 8.1 would take it for the answer to the next request; newer ones do so with TLS,
 * where they let OpenSSL read ahead.  So before a request is sent on a kept connection, no bytes may
 * wait there to be read; otherwise libcurl closes it, and the request is sent on a new one.  HTTP/2
 * says itself which answer belongs to which request; whether a connection speaks it is known from its
 * first answer.  One that the other side has closed is not used either: libcurl would find that out
 * when it sends, and whether HTTP/2 has sent a part is not known.
 *
 * Bytes that arrive after the request was sent cannot be told from its answer.
 *
 * libcurl reports the ports and the addresses of the connection, not its socket.  So sockets are
 * recorded by their port when the first request is sent; connections to several services may have
 * the same.  A socket also tells when its last bytes arrived.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "transport/request.h"

/* The kernel counts in ticks of its clock, of 10 ms at most. */
#define KEPT_ARRIVAL_EXACT_MS 10

/* By its number. */
typedef struct KeptSocket
{
	int			port;			/* its local port when it was recorded; 0: it was not */
	int			next;			/* recorded with the same port; 0: none */
	bool		http1;			/* it does not speak HTTP/2 */
} KeptSocket;

static KeptSocket *kept_sockets;
static int	kept_n_sockets;
static int	kept_by_port[65536];	/* the first; 0: none */

/* Of a socket of the Internet: its own port, or that of the other side; 0: unknown.  text: NULL, or its address. */
static int
kept_address(int fd, int (*name) (int, struct sockaddr *, socklen_t *), char *text)
{
	struct sockaddr_storage address = {0};
	socklen_t	len = sizeof(address);
	struct sockaddr_in *in4 = (struct sockaddr_in *) &address;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *) &address;

	if (name(fd, (struct sockaddr *) &address, &len) != 0 || (address.ss_family != AF_INET && address.ss_family != AF_INET6))
		return 0;
	if (text != NULL && inet_ntop(address.ss_family, address.ss_family == AF_INET ? (void *) &in4->sin_addr : (void *) &in6->sin6_addr,
								  text, INET6_ADDRSTRLEN) == NULL)
		return 0;
	return ntohs(address.ss_family == AF_INET ? in4->sin_port : in6->sin6_port);
}

/* Is the socket connected to that place?  -1: to none, a reset has ended it. */
static int
kept_leads_to(int fd, const char *remote_ip, int remote_port)
{
	char		ip[INET6_ADDRSTRLEN];
	int			port = kept_address(fd, getpeername, ip);

	if (port == 0)
		return -1;
	return port == remote_port && (remote_ip == NULL || strcmp(ip, remote_ip) == 0);
}

/* Records a socket; without memory it stays unknown. */
static void
kept_record(int fd, int port, bool http1)
{
	if (fd >= kept_n_sockets)
	{
		int			n = fd + fd / 2 + 64;
		KeptSocket *sockets = realloc(kept_sockets, n * sizeof(KeptSocket));

		if (sockets == NULL)
			return;
		memset(sockets + kept_n_sockets, 0, (n - kept_n_sockets) * sizeof(KeptSocket));
		kept_sockets = sockets;
		kept_n_sockets = n;
	}
	/* an earlier socket had this number */
	if (kept_sockets[fd].port != 0)
	{
		int		   *link = &kept_by_port[kept_sockets[fd].port];

		while (*link != fd)
			link = &kept_sockets[*link].next;
		*link = kept_sockets[fd].next;
	}
	kept_sockets[fd] = (KeptSocket) {port, kept_by_port[port], http1};
	kept_by_port[port] = fd;
}

/*
 * libcurl has this socket for the request.  It tries addresses of two families at once: while one of
 * them is slow, several of the other may fail.
 */
void
sas_transport_kept_note(SasRequest *r, int fd)
{
	memmove(r->sockets + 1, r->sockets, sizeof(r->sockets) - sizeof(r->sockets[0]));
	r->sockets[0] = fd;
}

/* Has OpenSSL read what libcurl has not?  It is libcurl's, and the server's: sas is not linked with it. */
static bool
kept_has_read_ahead(SasRequest *r)
{
	int			(*has_pending) (const void *) = (int (*) (const void *)) dlsym(RTLD_DEFAULT, "SSL_has_pending");
	struct curl_tlssessioninfo *tls = NULL;

	return has_pending != NULL && curl_easy_getinfo(r->easy, CURLINFO_TLS_SSL_PTR, &tls) == CURLE_OK && tls != NULL &&
		tls->backend == CURLSSLBACKEND_OPENSSL && tls->internals != NULL && has_pending(tls->internals) == 1;
}

/* May the request be sent on this connection? */
bool
sas_transport_kept_is_clean(SasRequest *r, int local_port, const char *remote_ip, int remote_port)
{
	struct pollfd there = {.fd = 0,.events = POLLIN | POLLRDHUP};
	bool		ended = false;

	if (local_port <= 0 || local_port > 65535)
		return true;
	/* libcurl 8 tells the address that it was asked for; of these, another one is reached */
	if (remote_ip != NULL && (remote_ip[0] == '\0' || strcmp(remote_ip, "0.0.0.0") == 0 || strcmp(remote_ip, "::") == 0))
		remote_ip = NULL;
	r->local_port = local_port;
	r->fd = 0;
	for (int i = 0; i < SAS_REQUEST_SOCKETS; i++)
		if (r->sockets[i] != 0 && kept_address(r->sockets[i], getsockname, NULL) == local_port &&
			kept_leads_to(r->sockets[i], remote_ip, remote_port) != 0)
		{
			kept_record(r->sockets[i], local_port, !r->http2);
			r->fd = r->sockets[i];
			return true;
		}
	for (int fd = kept_by_port[local_port]; fd != 0 && there.fd == 0; fd = kept_sockets[fd].next)
	{
		int			leads;

		if (kept_address(fd, getsockname, NULL) != local_port)
			continue;
		leads = kept_leads_to(fd, remote_ip, remote_port);
		if (leads > 0)
			there.fd = fd;
		ended |= leads < 0;
	}
	/* one that a reset has ended may be that of this connection */
	if (there.fd == 0)
		return !ended;
	r->fd = there.fd;
	/* bytes may wait with HTTP/2; the end of the connection, or an error, is a bad sign with both */
	if (!kept_sockets[there.fd].http1)
		there.events = POLLRDHUP;
	return poll(&there, 1, 0) == 0 && !(kept_sockets[there.fd].http1 && kept_has_read_ahead(r));
}

/* The socket on which its request was sent; -1: unknown. */
int
sas_transport_kept_socket(const SasRequest *r)
{
	return r->fd != 0 && kept_address(r->fd, getsockname, NULL) == r->local_port ? r->fd : -1;
}

/*
 * A process that was stopped, or waited in a transaction, reads late what
 * arrived in time.  The kernel knows when the last bytes came on the socket;
 * those of this answer are not later than that.
 */
void
sas_transport_kept_note_arrival(SasRequest *r)
{
	struct tcp_info info;
	socklen_t	len = sizeof(info);

	r->arrived_us = 0;
	if (!r->transport->late || getsockopt(sas_transport_kept_socket(r), IPPROTO_TCP, TCP_INFO, &info, &len) != 0 ||
		info.tcpi_last_data_recv <= KEPT_ARRIVAL_EXACT_MS)
		return;
	r->arrived_us = sas_transport_now_us() - (int64_t) (info.tcpi_last_data_recv - KEPT_ARRIVAL_EXACT_MS) * 1000;
}

/* Its answer is one of HTTP/1. */
void
sas_transport_kept_note_http1(const SasRequest *r)
{
	if (r->fd != 0 && r->fd < kept_n_sockets)
		kept_sockets[r->fd].http1 = true;
}

/*
 * After a hop: true if it found no clean connection.  Then r is set up for a new one; nothing was
 * sent.
 */
bool
sas_transport_kept_again(SasRequest *r)
{
	if (!r->unclean)
		return false;
	r->unclean = false;
	return curl_easy_setopt(r->easy, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
		curl_easy_setopt(r->easy, CURLOPT_FORBID_REUSE, 0L) == CURLE_OK &&
		curl_easy_setopt(r->easy, CURLOPT_TIMEOUT_MS, sas_transport_request_left_ms(r)) == CURLE_OK;
}
