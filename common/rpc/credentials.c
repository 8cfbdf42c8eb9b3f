// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/credentials.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

// Made by one thread, and looked at by others of the core's: tls is set last, and read first.
struct expected {
    struct ps_tls *_Atomic tls;  // referenced
    enum ps_role to;
};

static void credentials_forget(void *arg)
{
    struct expected *x = arg;
    ps_tls_close(x->tls);
    free(x);
}

// 0: who answers is who was called, whatever name the core has found in its certificate.
static int credentials_verify(const char *name, const char *pem, void *arg)
{
    const struct expected *x = arg;
    (void)name;
    const struct ps_tls *tls = x->tls;
    return ps_tls_accepts(tls, pem, x->to) ? 0 : 1;
}

grpc_channel_credentials *ps__channel_credentials(struct ps_tls *tls, enum ps_role to)
{
    struct ps_tls_pem pem;
    struct ps_error e;
    if (!tls)
        return grpc_insecure_credentials_create();
    if (ps_tls_pem(tls, &pem, &e))
        return grpc_ssl_credentials_create_ex("", NULL, NULL, NULL);
    struct expected *x = ps_alloc(sizeof *x);
    ps_tls_ref(tls);
    x->to = to;
    x->tls = tls;
    const grpc_ssl_verify_peer_options verify = {credentials_verify, x, credentials_forget};
    grpc_ssl_pem_key_cert_pair pair = {pem.key, pem.certificate};
    grpc_channel_credentials *credentials = grpc_ssl_credentials_create_ex(pem.ca, &pair, &verify, NULL);
    ps_tls_pem_free(&pem);
    return credentials;
}

static void credentials_say(struct ps_tls *tls)
{
    char until[PS_TLS_TIME];
    ps_tls_ends_soon(tls, until);
    ps_info("new certificates are in use, until %s", until);
}

// For each connection, one after the other.
static grpc_ssl_certificate_config_reload_status credentials_fetch(void *arg,
                                                                   grpc_ssl_server_certificate_config **config)
{
    struct ps__port_tls *s = arg;
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
    if (s->version)
        credentials_say(s->tls);
    s->version = version;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

grpc_server_credentials *ps__server_credentials(struct ps__port_tls *s)
{
    if (!s)
        return grpc_insecure_server_credentials_create();
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, credentials_fetch, s));
}

static bool credentials_are_resumed(const grpc_auth_context *context)
{
    grpc_auth_property_iterator said =
        grpc_auth_context_find_properties_by_name(context, GRPC_SSL_SESSION_REUSED_PROPERTY);
    const grpc_auth_property *reused = grpc_auth_property_iterator_next(&said);
    return !reused || strcmp(reused->value, "false") != 0;
}

// ---- munge ----------------------------------------------------------------------------------------------------------

char *ps__call_credential(const grpc_metadata_array *metadata)
{
    for (size_t i = 0; i < metadata->count; i++) {
        const grpc_slice *value = &metadata->metadata[i].value;
        if (grpc_slice_str_cmp(metadata->metadata[i].key, PS__MUNGE_KEY) == 0)
            return strndup((const char *)GRPC_SLICE_START_PTR(*value), GRPC_SLICE_LENGTH(*value));
    }
    return NULL;
}

// What the core keeps with a connection as long as it lives.
static const char connection_property[] = "paramserver_munge";

static bool connection_knows(const grpc_auth_context *context, struct ps_identity *who)
{
    grpc_auth_property_iterator said = grpc_auth_context_find_properties_by_name(context, connection_property);
    const grpc_auth_property *one = grpc_auth_property_iterator_next(&said);
    if (!one || one->value_length != sizeof *who)
        return false;
    memcpy(who, one->value, sizeof *who);
    return true;
}

// Of several who show one the first stays.
void ps__connection_remember(grpc_call *call, const struct ps_identity *who)
{
    struct ps_identity before;
    grpc_auth_context *context = grpc_call_auth_context(call);
    if (context && !connection_knows(context, &before))
        grpc_auth_context_add_property(context, connection_property, (const char *)who, sizeof *who);
    grpc_auth_context_release(context);
}

enum ps_code ps__connection_identity(grpc_call *call, struct ps_identity *who, struct ps_error *e)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    const bool knows = context && connection_knows(context, who);
    grpc_auth_context_release(context);
    return knows ? (e->code = PS_OK)
                 : ps_fail(e, PS_UNAUTHENTICATED,
                           "the call brings no munge credential: expected munge: true in the caller's cluster, or "
                           "--munge");
}

// ---- who calls ------------------------------------------------------------------------------------------------------

enum ps_code ps__call_identity(grpc_call *call, bool has_tls, struct ps_identity *who, struct ps_error *e)
{
    *who = (struct ps_identity){.roles = PS_ROLE_ALL};
    e->code = PS_OK;
    if (!has_tls)
        return PS_OK;
    grpc_auth_context *context = grpc_call_auth_context(call);
    grpc_auth_property_iterator shown =
        grpc_auth_context_find_properties_by_name(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
    const grpc_auth_property *pem = grpc_auth_property_iterator_next(&shown);
    ps_tls_identify(pem ? pem->value : "", pem ? pem->value_length : 0, credentials_are_resumed(context), who, e);
    grpc_auth_context_release(context);
    return e->code;
}
