// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/credentials.h"

#include <string.h>

#include "common/base/log.h"

grpc_channel_credentials *ps__channel_credentials(struct ps_tls *tls)
{
    struct ps_tls_pem pem;
    struct ps_error e;
    if (!tls)
        return grpc_insecure_credentials_create();
    if (ps_tls_pem(tls, &pem, &e))
        return grpc_ssl_credentials_create_ex("", NULL, NULL, NULL);
    grpc_ssl_pem_key_cert_pair pair = {pem.key, pem.certificate};
    grpc_channel_credentials *credentials = grpc_ssl_credentials_create_ex(pem.ca, &pair, NULL, NULL);
    ps_tls_pem_free(&pem);
    return credentials;
}

// For each connection, one after the other.
static grpc_ssl_certificate_config_reload_status credentials_fetch(void *arg,
                                                                   grpc_ssl_server_certificate_config **config)
{
    struct ps__server_tls *s = arg;
    struct ps_tls_pem pem;
    struct ps_error e;
    const uint64_t version = ps_tls_look(s->tls, &e);
    if (e.code)
        ps_warn("%s; the certificate of before stays in use", e.text);
    if (version == s->version)
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    if (ps_tls_pem(s->tls, &pem, &e))
        return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_FAIL;
    const grpc_ssl_pem_key_cert_pair pair = {pem.key, pem.certificate};
    *config = grpc_ssl_server_certificate_config_create(pem.ca, &pair, 1);
    ps_tls_pem_free(&pem);
    s->version = version;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

grpc_server_credentials *ps__server_credentials(struct ps__server_tls *s)
{
    if (!s->tls)
        return grpc_insecure_server_credentials_create();
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, credentials_fetch, s));
}

static unsigned credentials_roles(const grpc_auth_context *context)
{
    unsigned roles = 0;
    const grpc_auth_property *p;
    grpc_auth_property_iterator names = grpc_auth_context_find_properties_by_name(context, GRPC_X509_SAN_PROPERTY_NAME);
    while ((p = grpc_auth_property_iterator_next(&names)))
        roles |= ps_role_of_host(p->value);
    return roles;
}

static void credentials_user(const grpc_auth_context *context, char user[PS_USER_MAX + 1])
{
    grpc_auth_property_iterator names = grpc_auth_context_find_properties_by_name(context, GRPC_X509_CN_PROPERTY_NAME);
    const grpc_auth_property *p = grpc_auth_property_iterator_next(&names);
    user[0] = '\0';
    if (p && p->value_length <= PS_USER_MAX && strlen(p->value) == p->value_length && ps_user_is_plain(p->value))
        strcpy(user, p->value);
}

enum ps_code ps__call_identity(grpc_call *call, const struct ps__server_tls *s, struct ps_identity *who,
                               struct ps_error *e)
{
    *who = (struct ps_identity){.roles = PS_ROLE_ALL};
    e->code = PS_OK;
    if (!s->tls)
        return PS_OK;
    grpc_auth_context *context = grpc_call_auth_context(call);
    who->roles = credentials_roles(context);
    credentials_user(context, who->user);
    grpc_auth_context_release(context);
    if (!who->roles || !who->user[0])
        return ps_fail(e, PS_PERMISSION_DENIED,
                       "the certificate names no %s: expected one that psctl tls issue has made",
                       who->user[0] ? "role" : "user");
    return PS_OK;
}
