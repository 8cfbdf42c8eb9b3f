// SPDX-License-Identifier: Apache-2.0
#include "psd/http/files.h"

#include "common/base/alloc.h"

// make writes these lists of bytes, each with a comma at its end.
static const unsigned char files_html[] = {
#include "psd/http/page/page.html.inc"
    0};
static const unsigned char files_css[] = {
#include "psd/http/page/page.css.inc"
    0};
static const unsigned char files_js[] = {
#include "psd/http/page/page.js.inc"
    0};
static const unsigned char files_icon[] = {
#include "psd/http/page/icon.svg.inc"
    0};

const struct psd_file psd_file_html = {files_html}, psd_file_css = {files_css}, psd_file_js = {files_js},
                      psd_file_icon = {files_icon};

enum ps_code psd_file_make(void *ctx, char **text, struct ps_error *e)
{
    const struct psd_file *file = ctx;
    *text = ps_try_strdup((const char *)file->text);
    return *text ? PS_OK : ps_no_memory(e, "a page");
}
