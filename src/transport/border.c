/* SPDX-License-Identifier: PostgreSQL */
/*
 * border.c: addresses that may not be connected to (base/networks.h).
 *
 * The address is asked about that libcurl is about to connect to, and that of
 * a kept connection before each request: whatever name led there, whatever
 * that name means by now, and whichever redirect asked for it.
 */
#include <string.h>
#include <unistd.h>

#include "base/networks.h"
#include "transport/request.h"

static bool
border_note(SasRequest *r, const char *setting)
{
	/* of several addresses of a name, one that may be used is what the call failed at */
	r->denied_by = setting;
	return setting == NULL;
}

/* libcurl needs a socket for this address; CURL_SOCKET_BAD: it tries the next address of that name. */
curl_socket_t
sas_transport_request_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	int			fd;

	(void) purpose;
	if (!border_note(arg, sas_base_networks_refuse(&address->addr)))
		return CURL_SOCKET_BAD;
	fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
	if (fd >= 0)
		sas_transport_kept_note(arg, fd);
	return fd;
}

/* May this request use a connection to that address? */
bool
sas_transport_request_may_use(SasRequest *r, const char *ip)
{
	return ip == NULL || ip[0] == '\0' || border_note(r, sas_base_networks_refuse_text(ip));
}

/* The same of one that is on its way, after the settings have changed. */
bool
sas_transport_request_may_go_on(SasRequest *r)
{
	const char *ip = NULL;

	return r->begun == 0 || curl_easy_getinfo(r->easy, CURLINFO_PRIMARY_IP, &ip) != CURLE_OK ||
		sas_transport_request_may_use(r, ip);
}
