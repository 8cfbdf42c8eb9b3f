// SPDX-License-Identifier: Apache-2.0
#include "psd/rpc/reflection.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/utf8.h"
#include "common/wire/wire.h"
#include "proto/descriptor.pb-c.h"
#include "proto/reflection.pb-c.h"

typedef Paramserver__Descriptor__File file_t;
typedef Paramserver__Descriptor__Message message_t;
typedef Paramserver__Descriptor__Enum enum_t;
typedef Paramserver__Descriptor__Service service_t;
typedef Paramserver__Descriptor__Named named_t;
typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;

#define ASKS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define ANSWERS(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

static const uint8_t embedded[] = {
#include "proto/descriptors.inc"
};

struct psd_reflection {
    Paramserver__Descriptor__Set *set;
    file_t **files;                                    // set->n_file, of the same index
    Grpc__Reflection__V1__ServiceResponse *services;   // n_services
    Grpc__Reflection__V1__ServiceResponse **pointers;  // to them, as protobuf-c wants a list
    size_t n_services;
};

// ---- what there is ------------------------------------------------------------------------------------------------

static enum ps_code reflection_decode(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t len,
                                      void *out, struct ps_error *e)
{
    ProtobufCMessage *m;
    struct ps_slices in = PS_SLICES_EMPTY, payload = PS_SLICES_EMPTY;
    ps_slices_add(&in, (struct ps_slice){data, len, NULL});
    enum ps_code code = in.broken ? ps_no_memory(e, "descriptors") : ps_msg_unpack(type, &in, &m, &payload, e);
    if (code == PS_OK)
        *(ProtobufCMessage **)out = m;
    ps_slices_clear(&payload);
    ps_slices_clear(&in);
    return code;
}

static enum ps_code decode_files(struct psd_reflection *r, struct ps_error *e)
{
    enum ps_code code =
        reflection_decode(&paramserver__descriptor__set__descriptor, embedded, sizeof embedded, &r->set, e);
    if (code)
        return code;
    r->files = ps_try_alloc_array(r->set->n_file, sizeof *r->files);
    if (!r->files)
        return ps_no_memory(e, "descriptors");
    for (size_t i = 0; i < r->set->n_file && code == PS_OK; i++) {
        const ProtobufCBinaryData *bytes = &r->set->file[i];
        code = reflection_decode(&paramserver__descriptor__file__descriptor, bytes->data, bytes->len, &r->files[i], e);
        r->n_services += code ? 0 : r->files[i]->n_service;
    }
    return code;
}

static char *reflection_join_names(const char *package, const char *name)  // "package.name"; NULL: no memory
{
    size_t size = strlen(package) + strlen(name) + 2;
    char *joined = ps_try_alloc(size);
    if (joined)
        snprintf(joined, size, "%s.%s", package, name);
    return joined;
}

static enum ps_code name_services(struct psd_reflection *r, struct ps_error *e)
{
    size_t n = 0;
    r->services = ps_try_alloc_array(r->n_services, sizeof *r->services);
    r->pointers = ps_try_alloc_array(r->n_services, sizeof *r->pointers);
    if (!r->services || !r->pointers)
        return ps_no_memory(e, "names of services");
    for (size_t i = 0; i < r->set->n_file; i++)
        for (size_t k = 0; k < r->files[i]->n_service; k++, n++) {
            grpc__reflection__v1__service_response__init(&r->services[n]);
            r->pointers[n] = &r->services[n];
            r->services[n].name = reflection_join_names(r->files[i]->package, r->files[i]->service[k]->name);
            if (!r->services[n].name)
                return ps_no_memory(e, "names of services");
        }
    return PS_OK;
}

enum ps_code psd_reflection_create(struct psd_reflection **out, struct ps_error *e)
{
    struct psd_reflection *r = ps_try_alloc(sizeof *r);
    if (!r)
        return ps_no_memory(e, "reflection");
    enum ps_code code = decode_files(r, e);
    if (code == PS_OK)
        code = name_services(r, e);
    if (code)
        psd_reflection_destroy(r);
    else
        *out = r;
    return code;
}

void psd_reflection_destroy(struct psd_reflection *r)
{
    if (!r)
        return;
    for (size_t i = 0; r->services && i < r->n_services; i++)
        free(r->services[i].name);
    for (size_t i = 0; r->files && i < r->set->n_file; i++)
        if (r->files[i])
            ps_msg_free(&r->files[i]->base);
    free(r->pointers);
    free(r->services);
    free(r->files);
    if (r->set)
        ps_msg_free(&r->set->base);
    free(r);
}

// ---- finding ------------------------------------------------------------------------------------------------------

// What follows part and its dot in a dotted name; "" where that is all of it, NULL where it is not the first part.
static const char *reflection_name_after(const char *name, const char *part)
{
    size_t n = strlen(part);
    if (strncmp(name, part, n) != 0)
        return NULL;
    if (name[n] == '.' && name[n + 1])
        return name + n + 1;
    return name[n] ? NULL : name + n;
}

static bool any_is(named_t *const *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i]->name, name) == 0)
            return true;
    return false;
}

// An enum's values are its siblings, not its members, as in C++.
static bool any_enum_has(enum_t *const *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(v[i]->name, name) == 0 || any_is(v[i]->value, v[i]->n_value, name))
            return true;
    return false;
}

static bool any_service_has(service_t *const *v, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        const char *rest = reflection_name_after(name, v[i]->name);
        if (rest && (!*rest || any_is(v[i]->method, v[i]->n_method, rest)))
            return true;
    }
    return false;
}

// The message of this name, or else the innermost on the way to it; *rest is what remains of the name then.
static const message_t *reflection_descend(message_t *const *v, size_t n, const char *name, const char **rest)
{
    for (size_t i = 0; i < n; i++) {
        const char *below = reflection_name_after(name, v[i]->name);
        if (!below)
            continue;
        const message_t *inner = reflection_descend(v[i]->nested_type, v[i]->n_nested_type, below, rest);
        if (inner)
            return inner;
        *rest = below;
        return v[i];
    }
    return NULL;
}

static bool message_has(const message_t *m, const char *name)
{
    return !*name || any_is(m->field, m->n_field, name) || any_is(m->oneof_decl, m->n_oneof_decl, name) ||
           any_enum_has(m->enum_type, m->n_enum_type, name);
}

static bool file_has(const file_t *f, const char *symbol)
{
    const char *rest, *name = reflection_name_after(symbol, f->package);
    if (!name || !*name)
        return false;
    const message_t *m = reflection_descend(f->message_type, f->n_message_type, name, &rest);
    return (m && message_has(m, rest)) || any_enum_has(f->enum_type, f->n_enum_type, name) ||
           any_service_has(f->service, f->n_service, name);
}

static bool file_has_message(const file_t *f, const char *symbol)
{
    const char *rest, *name = reflection_name_after(symbol, f->package);
    return name && reflection_descend(f->message_type, f->n_message_type, name, &rest) && !*rest;
}

static bool file_is(const file_t *f, const char *name)
{
    return strcmp(f->name, name) == 0;
}

// The first file of which that holds, or NULL.
static ProtobufCBinaryData *reflection_find(const struct psd_reflection *r,
                                            bool (*holds)(const file_t *f, const char *name), const char *name)
{
    for (size_t i = 0; i < r->set->n_file; i++)
        if (holds(r->files[i], name))
            return &r->set->file[i];
    return NULL;
}

// ---- answering ----------------------------------------------------------------------------------------------------

// An answer under way: the response and what it may point to.
struct reply_builder {
    const struct psd_reflection *r;
    response_t response;
    Grpc__Reflection__V1__FileDescriptorResponse files;
    Grpc__Reflection__V1__ExtensionNumberResponse extensions;
    Grpc__Reflection__V1__ListServiceResponse services;
    Grpc__Reflection__V1__ErrorResponse error;
    char text[256];
};

static void __attribute__((format(printf, 3, 4)))
say_error(struct reply_builder *t, enum ps_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(t->text, sizeof t->text, format, args);
    va_end(args);
    ps_utf8_repair(t->text);
    grpc__reflection__v1__error_response__init(&t->error);
    t->error.error_code = code;
    t->error.error_message = t->text;
    t->response.message_response_case = ANSWERS(ERROR_RESPONSE);
    t->response.error_response = &t->error;
}

static void say_file(struct reply_builder *t, ProtobufCBinaryData *file)
{
    grpc__reflection__v1__file_descriptor_response__init(&t->files);
    t->files.n_file_descriptor_proto = 1;
    t->files.file_descriptor_proto = file;
    t->response.message_response_case = ANSWERS(FILE_DESCRIPTOR_RESPONSE);
    t->response.file_descriptor_response = &t->files;
}

static void say_services(struct reply_builder *t)
{
    grpc__reflection__v1__list_service_response__init(&t->services);
    t->services.n_service = t->r->n_services;
    t->services.service = t->r->pointers;
    t->response.message_response_case = ANSWERS(LIST_SERVICES_RESPONSE);
    t->response.list_services_response = &t->services;
}

// proto3 has no extensions.
static void say_no_extension(struct reply_builder *t, char *type)
{
    grpc__reflection__v1__extension_number_response__init(&t->extensions);
    t->extensions.base_type_name = type;
    t->response.message_response_case = ANSWERS(ALL_EXTENSION_NUMBERS_RESPONSE);
    t->response.all_extension_numbers_response = &t->extensions;
}

static void say_file_or_none(struct reply_builder *t, ProtobufCBinaryData *file, const char *what, const char *name)
{
    if (file)
        say_file(t, file);
    else
        say_error(t, PS_NOT_FOUND, "no %s '%.128s' is known here", what, name);
}

static void reflection_answer(struct reply_builder *t, const request_t *q)
{
    const Grpc__Reflection__V1__ExtensionRequest *x = q->file_containing_extension;
    switch (q->message_request_case) {
    case ASKS(LIST_SERVICES):
        say_services(t);
        break;
    case ASKS(FILE_BY_FILENAME):
        say_file_or_none(t, reflection_find(t->r, file_is, q->file_by_filename), "file", q->file_by_filename);
        break;
    case ASKS(FILE_CONTAINING_SYMBOL):
        say_file_or_none(t, reflection_find(t->r, file_has, q->file_containing_symbol), "symbol",
                         q->file_containing_symbol);
        break;
    case ASKS(FILE_CONTAINING_EXTENSION):
        if (reflection_find(t->r, file_has_message, x->containing_type))
            say_error(t, PS_NOT_FOUND, "message '%.128s' has no extension %d", x->containing_type, x->extension_number);
        else
            say_error(t, PS_NOT_FOUND, "no message '%.128s' is known here", x->containing_type);
        break;
    case ASKS(ALL_EXTENSION_NUMBERS_OF_TYPE):
        if (reflection_find(t->r, file_has_message, q->all_extension_numbers_of_type))
            say_no_extension(t, q->all_extension_numbers_of_type);
        else
            say_error(t, PS_NOT_FOUND, "no message '%.128s' is known here", q->all_extension_numbers_of_type);
        break;
    default:
        say_error(t, PS_INVALID_ARGUMENT,
                  "the request asks for nothing that is known here: expected list_services, "
                  "a file, a symbol or extensions");
    }
}

enum ps_code psd_reflection_answer(void *ctx, const struct ps_slices *request, struct ps_slices *reply,
                                   struct ps_error *e)
{
    ProtobufCMessage *m;
    struct ps_slices payload = PS_SLICES_EMPTY;
    struct reply_builder t = {.r = ctx};
    enum ps_code code =
        ps_msg_unpack(&grpc__reflection__v1__server_reflection_request__descriptor, request, &m, &payload, e);
    if (code)
        return code;
    request_t *q = (request_t *)m;
    grpc__reflection__v1__server_reflection_response__init(&t.response);
    t.response.valid_host = q->host;
    t.response.original_request = q;
    reflection_answer(&t, q);
    ps_msg_pack(&t.response.base, NULL, reply);
    ps_slices_clear(&payload);
    ps_msg_free(m);
    return PS_OK;
}
