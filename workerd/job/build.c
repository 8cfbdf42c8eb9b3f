// SPDX-License-Identifier: Apache-2.0
#include "workerd/job/build.h"

#include <inttypes.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <protobuf-c/protobuf-c.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "common/base/machine.h"
#include "common/job/job.h"
#include "common/tls/munged.h"
#include "config.h"
#include "workerd/collective/rpc/version.h"
#include "workerd/collective/shm.h"
#include "workerd/nn/device.h"
#include "workerd/weights/weights.h"

enum { FILES = 4096 };  // that a psd or worker 0 of a large job may have open

// advice: NULL where there is nothing to do.
static void build_add(json_t *rows, const char *what, bool has, const char *advice, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void build_add(json_t *rows, const char *what, bool has, const char *advice, const char *format, ...)
{
    char finding[512];
    va_list args;
    va_start(args, format);
    vsnprintf(finding, sizeof finding, format, args);
    va_end(args);
    json_t *row = json_pack("{ss sb ss}", "what", what, "has", (int)has, "finding", finding);
    if (advice && !has)
        json_object_set_new(row, "advice", json_string(advice));
    json_array_append_new(rows, row);
}

static void build_add_strategies(json_t *rows)
{
    char names[256] = "";
    for (size_t i = 0; ps_job_strategies[i]; i++) {
        const size_t n = strlen(names);
        snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", ps_job_strategies[i]);
    }
    build_add(rows, "strategies", true, NULL, "%s", names);
}

// ---- devices ------------------------------------------------------------------------------------------------------

static void build_add_cpu(json_t *rows)
{
    char text[256];
    nn_device_cpu.describe(text, sizeof text);
    build_add(rows, "cpu", true, NULL, "%s", text);
}

// The module, the driver and the first GPU: a device that opens has all three.
static void build_add_gpu(json_t *rows)
{
    const struct nn_device *device;
    struct nn_context *context;
    struct ps_error e = {PS_OK, ""};
    char text[256];
    int index;
    if (nn_device_find("gpu", &device, &index, &e) || device->open(index, 1, &context, &e)) {
        build_add(rows, "gpu", false, NULL, "%s", e.text);
        return;
    }
    const bool has_cudnn =
        device->set_convolutions && device->set_convolutions(context, NN_CONVOLUTIONS_FASTEST, &e) == PS_OK;
    device->close(context);
    device->describe(text, sizeof text);
    build_add(rows, "gpu", true, NULL, "%s", text);
    build_add(rows, "cuDNN", has_cudnn, "until then convolutions are products of cuBLAS, which move more memory", "%s",
              has_cudnn ? "convolutions" : e.text);
    const bool has_nccl = device->sums[NN_SUMS_AMONG_ALL] && device->sums[NN_SUMS_AMONG_ALL]->check(&e) == PS_OK;
    build_add(rows, "NCCL", has_nccl, "until then GPUs add up in the hosts' memory, and workers on the ring", "%s",
              has_nccl ? "all-reduce among the GPUs of a worker (mirrored) and of all (communication: nccl)" : e.text);
}

// ---- between workers ----------------------------------------------------------------------------------------------

static void build_add_collectives(json_t *rows)
{
    char host[WK_SHM_HOST];
    struct statvfs fs;
    struct ps_error e;
    const bool mounted = statvfs("/dev/shm", &fs) == 0;
    wk_shm_host(2, host);
    build_add(rows, "shared memory", host[0] != '\0',
              "mount a tmpfs of 64 MiB or more there (docker: --shm-size); until then workers of one host use the ring",
              "all-reduce within a host: /dev/shm %s, %.1f MiB free", mounted ? "is there" : "is not there",
              mounted ? (double)fs.f_bavail * (double)fs.f_frsize / (1 << 20) : 0.0);
    build_add(rows, "ring", true, NULL, "all-reduce between hosts: over sockets");
    build_add(rows, "TLS", true, NULL, "mutual, of all connections but NCCL's: %s", OpenSSL_version(OPENSSL_VERSION));
    const bool has_munge = ps_munged_check(&e) == PS_OK;
    build_add(rows, "munge", has_munge, "install libmunge (Debian: libmunge-dev), then configure and build again",
              "in place of TLS: %s", has_munge ? "who may connect, by the site's munged" : "not in this build");
}

// ---- files --------------------------------------------------------------------------------------------------------

static void build_add_weights(json_t *rows)
{
    struct ps_error e = {PS_OK, ""};
    build_add(rows, "safetensors", true, NULL, "weights in .safetensors");
    const bool has = wk_weights_check_output("model.keras", &e) == PS_OK;
    build_add(rows, "HDF5", has, "install HDF5 (Debian: libhdf5-dev), then configure and build again",
              "%s in .keras and .weights.h5", has ? "weights" : "no weights");
}

#ifdef HAVE_LIBPNG
enum { HAS_PNG = true };
#else
enum { HAS_PNG = false };
#endif
#ifdef HAVE_LIBJPEG
enum { HAS_JPEG = true };
#else
enum { HAS_JPEG = false };
#endif

static void build_add_images(json_t *rows)
{
    build_add(rows, "PNG", HAS_PNG, "install libpng (Debian: libpng-dev), then configure and build again",
              "%s, alone and in TFRecords", HAS_PNG ? "images" : "no images");
    build_add(rows, "JPEG", HAS_JPEG, "install libjpeg (Debian: libjpeg-dev), then configure and build again",
              "%s, alone and in TFRecords", HAS_JPEG ? "images" : "no images");
}

// ---- libraries and limits -----------------------------------------------------------------------------------------

static void build_add_libraries(json_t *rows)
{
    build_add(rows, "libraries", true, NULL, "gRPC core %s, protobuf-c %s, jansson %s", wk_rpc_version(),
              protobuf_c_version(), JANSSON_VERSION);
}

#ifdef HAVE_HWLOC
enum { HAS_HWLOC = true };
#else
enum { HAS_HWLOC = false };
#endif

static void build_add_binding(json_t *rows)
{
    build_add(rows, "hwloc", HAS_HWLOC, "install hwloc (Debian: libhwloc-dev), then configure and build again",
              "replicas%s bound to equal parts of the cores (bind: auto)", HAS_HWLOC ? "" : " cannot be");
}

static void build_add_limits(json_t *rows)
{
    const struct ps_machine_memory memory = ps_machine_memory("");
    struct rlimit files = {0};
    build_add(rows, "memory", true, NULL, "%.1f GiB: %s", (double)memory.bytes / (1 << 30), memory.why);
    getrlimit(RLIMIT_NOFILE, &files);
    build_add(rows, "open files", files.rlim_max >= FILES,
              "raise the hard limit (ulimit -Hn, LimitNOFILE=) where hundreds of workers connect to one process",
              "%ju, and as many as %ju where a process asks", (uintmax_t)files.rlim_cur, (uintmax_t)files.rlim_max);
}

void wk_print_build(void)
{
    json_t *rows = json_array();
    build_add(rows, "workerd", true, NULL, "version " PACKAGE_VERSION);
    build_add_strategies(rows);
    build_add_cpu(rows);
    build_add_gpu(rows);
    build_add_binding(rows);
    build_add_collectives(rows);
    build_add_weights(rows);
    build_add_images(rows);
    build_add_libraries(rows);
    build_add_limits(rows);
    json_dumpf(rows, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(rows);
}
