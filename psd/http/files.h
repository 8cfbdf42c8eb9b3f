// SPDX-License-Identifier: Apache-2.0
//
// The files of the status page, psd/http/page, as they were when psd was built.
#ifndef PSD_HTTP_FILES_H
#define PSD_HTTP_FILES_H

#include "common/base/error.h"

struct psd_file {
    const unsigned char *text;  // ends with a zero
};
extern const struct psd_file psd_file_html, psd_file_css, psd_file_js, psd_file_icon;

// *text is a copy, malloc'd. ctx: the file. RESOURCE_EXHAUSTED: no memory.
enum ps_code psd_file_make(void *ctx, char **text, struct ps_error *e);

#endif
