// SPDX-License-Identifier: Apache-2.0
//
// A session: who sends the requests of a stream, said once (Open). Its requests bring their sequence alone, and their
// job is found without a look at the table.
//
// Receives from: dispatch. Hands to: nobody. Threads: one at a time, as the requests of a stream are taken up.
#ifndef PSD_SESSION_H
#define PSD_SESSION_H

#include "psd/service/service.h"

// There was no memory to open the session that *at was to be: its requests are to come again, behind another Open.
void psd_session_lose(struct psd_session **at);
bool psd_session_is_lost(const struct psd_session *s);
// Does the caller leave it to the session who it is?
bool psd_session_is_meant(const Paramserver__V1__Caller *caller);
// Completes the caller of a request. Its job's name is the session's, its client's id the call's own.
void psd_session_complete(const struct psd_session *s, struct psd_call *call, Paramserver__V1__Caller *caller);
// The job that was found for a request before this one, referenced. NULL: none was, or it is not in the job table any
// more.
struct psd_job *psd_session_job(struct psd_session *s);
void psd_session_set_job(struct psd_session *s, struct psd_job *job);

#endif
