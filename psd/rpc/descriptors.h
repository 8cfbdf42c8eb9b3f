// SPDX-License-Identifier: Apache-2.0
//
// The limit of open files, and what happens at it.
//
// The gRPC core stops listening for good once accept() fails for want of a descriptor. So it never does: psd takes the
// place of accept4() for the whole process, and while all descriptors but a reserve are in use it closes each new
// connection at once. Its client tries again. Threads: any.
#ifndef PSD_RPC_DESCRIPTORS_H
#define PSD_RPC_DESCRIPTORS_H

// Raises the process's own limit to what the system allows it. Once, before psd listens. Returns the limit of open
// files; 0: there is none.
long psd_descriptors_raise(void);

#endif
