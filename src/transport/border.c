/* SPDX-License-Identifier: PostgreSQL */
/*
 * border.c: addresses that may not be connected to (base/networks.h).
 *
 * The address is checked to which libcurl is about to connect, and that of a kept connection
 * before each request. So neither the host name, nor a change of its address, nor a redirect
 * matters.
 */
#include <string.h>
#include <unistd.h>

#include "base/networks.h"
#include "transport/request.h"

static bool
border_note(SasRequest *r, const char *setting)
{
	/* if a name has several addresses, an allowed one has failed, so the border is not to blame */
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

/* May this request use a connection to this address? */
bool
sas_transport_request_may_use(SasRequest *r, const char *ip)
{
	return ip == NULL || ip[0] == '\0' || border_note(r, sas_base_networks_refuse_text(ip));
}

/* The same for a request in progress, after the settings have changed. */
bool
sas_transport_request_may_go_on(SasRequest *r)
{
	const char *ip = NULL;

	return r->begun == 0 || curl_easy_getinfo(r->easy, CURLINFO_PRIMARY_IP, &ip) != CURLE_OK ||
		sas_transport_request_may_use(r, ip);
}
