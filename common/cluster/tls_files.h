// SPDX-License-Identifier: Apache-2.0
//
// Where the certificates lie, as a cluster's description or the command line says.
#ifndef PS_CLUSTER_TLS_FILES_H
#define PS_CLUSTER_TLS_FILES_H

#include <stdbool.h>

// All NULL: there is no TLS. folder: it holds ca.pem and of each role psd.pem, worker.pem, admin.pem, certificate and
// key in one file, as `psctl tls init` makes them. Or the three files of this process; key NULL: the certificate's file
// holds it, too.
struct ps_tls_files {
    char *folder;  // malloc'd, as all are
    char *ca, *certificate, *key;
};
bool ps_tls_files_given(const struct ps_tls_files *files);  // is there TLS?
void ps_tls_files_clear(struct ps_tls_files *files);        // frees what it owns; there is none then

#endif
