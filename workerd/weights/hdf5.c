// SPDX-License-Identifier: Apache-2.0
//
// Top to bottom: opening what lies in memory, one array, all of them, the child that does this; writing.
#include "workerd/weights/hdf5_file.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/alloc.h"

enum {
    GROWTH = 1 << 20,      // bytes by which a file in memory grows
    MOST_PER_BYTE = 1032,  // bytes of an array that a byte of the file can hold: deflate's most
    MOST_ARRAYS = 1 << 16,
    MOST_NAME = 1 << 10,
};

// The library's own reports on standard error.
static void hdf5_silence(void)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

// Properties of a file that lies in memory and is never written to a disk; negative: there are none.
static hid_t hdf5_in_memory(void)
{
    hid_t list = H5Pcreate(H5P_FILE_ACCESS);
    if (list >= 0 && H5Pset_fapl_core(list, GROWTH, false) < 0) {
        H5Pclose(list);
        return -1;
    }
    return list;
}

enum ps_code wk_hdf5_check(struct ps_error *e)
{
    (void)e;
    return PS_OK;
}

// ---- one array ----------------------------------------------------------------------------------------------------

struct reading {
    uint64_t limit;  // bytes that an array may have
    struct ps_safetensor *tensor;
    size_t n, capacity;
    struct ps_error *e;
};

// Floats; and what Keras writes of bfloat16, which HDF5 has no type for: two bytes, and an attribute that says so.
static bool hdf5_has_floats(hid_t array, hid_t type, bool *bfloat16)
{
    *bfloat16 = H5Tget_class(type) == H5T_OPAQUE && H5Tget_size(type) == 2 && H5Aexists(array, "dtype") > 0;
    return H5Tget_class(type) == H5T_FLOAT || *bfloat16;
}

// Its bytes in another file, or in another array, are none of this one's.
static bool hdf5_is_elsewhere(hid_t array)
{
    hid_t list = H5Dget_create_plist(array);
    bool elsewhere = list < 0 || H5Pget_layout(list) == H5D_VIRTUAL || H5Pget_external_count(list) != 0;
    if (list >= 0)
        H5Pclose(list);
    return elsewhere;
}

static enum ps_code hdf5_read_shape(hid_t array, struct ps_safetensor *t, struct ps_error *e)
{
    hsize_t dim[H5S_MAX_RANK] = {0};
    hid_t space = H5Dget_space(array);
    int rank = space >= 0 ? H5Sget_simple_extent_ndims(space) : -1;
    bool known = rank >= 0 && rank <= PS_MAX_RANK && H5Sget_simple_extent_dims(space, dim, NULL) == rank;
    if (space >= 0)
        H5Sclose(space);
    if (!known)
        return ps_fail(e, PS_INVALID_ARGUMENT, "array '%.100s': expected a shape of at most %d dimensions", t->name,
                       PS_MAX_RANK);
    t->rank = (size_t)rank;
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        t->shape[i] = dim[i];
        empty |= dim[i] == 0;
    }
    if (empty)
        return PS_OK;  // of no elements
    return ps_shape_count(t->shape, t->rank, PS_FLOAT32, &t->count, e);
}

static void hdf5_widen_bfloat16(const uint16_t *from, uint64_t n, float *to)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static bool hdf5_read_floats(hid_t array, hid_t type, bool bfloat16, uint64_t n, float *to)
{
    if (!bfloat16)
        return H5Dread(array, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, to) >= 0;
    uint16_t *half = ps_try_alloc_array(n, sizeof *half);
    bool read = half && H5Dread(array, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, half) >= 0;
    if (read)
        hdf5_widen_bfloat16(half, n, to);
    free(half);
    return read;
}

// Adds an array of floats to r; others are left out.
static enum ps_code hdf5_take_array(struct reading *r, hid_t array, hid_t type, const char *name)
{
    struct ps_safetensor t = {.name = name};
    bool bfloat16 = false;
    if (!hdf5_has_floats(array, type, &bfloat16))
        return PS_OK;
    if (hdf5_is_elsewhere(array))
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "array '%.100s' lies in another file", name);
    if (hdf5_read_shape(array, &t, r->e))
        return r->e->code;
    if (t.count * sizeof(float) > r->limit)
        return ps_fail(r->e, PS_DATA_LOSS, "array '%.100s' has more elements than the file can hold", name);
    if (t.count == 0)
        return PS_OK;
    float *data = ps_try_alloc_array(t.count, sizeof *data);
    t.name = ps_try_strdup(name);
    t.data = data;
    if (!data || !t.name)
        return ps_no_memory(r->e, "an array");
    if (!hdf5_read_floats(array, type, bfloat16, t.count, data))
        return ps_fail(r->e, PS_DATA_LOSS, "array '%.100s' is damaged, or packed in a way that HDF5 here cannot unpack",
                       name);
    struct ps_safetensor *more = ps_try_reserve(r->tensor, r->n + 1, &r->capacity, sizeof *more);
    if (!more)
        return ps_no_memory(r->e, "an array");
    r->tensor = more;
    r->tensor[r->n++] = t;
    return PS_OK;
}

// ---- all of them --------------------------------------------------------------------------------------------------

// Called of each object of the file, with its path; not 0 ends the visit.
static herr_t hdf5_take_object(hid_t file, const char *name, const H5O_info_t *info, void *arg)
{
    static const char *const others[] = {"optimizer/", "optimizer_weights/", "metrics/"}, weights[] = "model_weights/";
    struct reading *r = arg;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(name, others[i], strlen(others[i])) == 0)
            return 0;
    if (info->type != H5O_TYPE_DATASET)
        return 0;
    if (r->n == MOST_ARRAYS || strlen(name) > MOST_NAME)
        return ps_fail(r->e, PS_INVALID_ARGUMENT, "expected at most %d arrays, with names of at most %d bytes",
                       MOST_ARRAYS, MOST_NAME);
    hid_t array = H5Dopen2(file, name, H5P_DEFAULT), type = array >= 0 ? H5Dget_type(array) : -1;
    if (type < 0)
        return ps_fail(r->e, PS_DATA_LOSS, "array '%.100s' is damaged", name);
    bool prefixed = strncmp(name, weights, strlen(weights)) == 0;
    enum ps_code code = hdf5_take_array(r, array, type, prefixed ? name + strlen(weights) : name);
    H5Tclose(type);
    H5Dclose(array);
    return (herr_t)code;
}

static enum ps_code hdf5_read_all(const uint8_t *bytes, size_t size, struct reading *r)
{
    hid_t list = hdf5_in_memory(), file = -1;
    if (list >= 0 && H5Pset_file_image(list, (void *)(uintptr_t)bytes, size) >= 0)  // which copies it
        file = H5Fopen("weights", H5F_ACC_RDONLY, list);
    if (file < 0)
        return ps_fail(r->e, PS_DATA_LOSS, "is no HDF5 file, or it is damaged");
    herr_t visited = H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, hdf5_take_object, r);
    if (visited < 0)
        return ps_fail(r->e, PS_DATA_LOSS, "the HDF5 file is damaged");
    return visited == 0 ? PS_OK : r->e->code;
}

// ---- the child ----------------------------------------------------------------------------------------------------

static enum ps_code hdf5_convert(const uint8_t *bytes, size_t size, const char *to, struct ps_error *e)
{
    struct reading r = {.limit = (uint64_t)size * MOST_PER_BYTE, .e = e};
    hdf5_silence();
    enum ps_code code = hdf5_read_all(bytes, size, &r);
    return code == PS_OK ? ps_safetensors_write(to, r.tensor, r.n, e) : code;
}

// What is allocated goes with the process. Standard error is left to the parent, whose end is this one's, too: signals
// that it has blocked are not heard here.
static void __attribute__((noreturn))
hdf5_child(const uint8_t *bytes, size_t size, const char *to, int say, pid_t parent)
{
    struct ps_error e = {0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    enum ps_code code = hdf5_convert(bytes, size, to, &e);
    if (code)
        (void)!write(say, &e, sizeof e);
    _exit(code ? 1 : 0);
}

// Waits for the child. What it says of its failure is in e.
static enum ps_code hdf5_wait(pid_t child, int say, struct ps_error *e)
{
    struct ps_error said = {0};
    size_t got = 0;
    int status;
    for (ssize_t n = 1; n > 0 || (n < 0 && errno == EINTR);) {
        n = read(say, (char *)&said + got, sizeof said - got);
        got += n > 0 ? (size_t)n : 0;
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return PS_OK;
    said.text[sizeof said.text - 1] = '\0';
    if (got == sizeof said && said.code)
        return ps_fail(e, said.code, "%s", said.text);
    return ps_fail(e, PS_DATA_LOSS, "the HDF5 library cannot read it: the file is damaged, or memory is short");
}

static enum ps_code hdf5_read_apart(const uint8_t *bytes, size_t size, int memory, const int say[2], struct ps_error *e)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    const pid_t parent = getpid(), child = fork();
    if (child == 0)
        hdf5_child(bytes, size, path, say[1], parent);
    close(say[1]);
    if (child < 0)
        return ps_fail(e, PS_RESOURCE_EXHAUSTED, "no process to read it: %s", strerror(errno));
    return hdf5_wait(child, say[0], e);
}

enum ps_code wk_hdf5_read(const uint8_t *bytes, size_t size, struct ps_safetensors **file, struct ps_error *e)
{
    char path[64];
    int say[2], memory = memfd_create("weights", MFD_CLOEXEC);
    if (memory < 0 || pipe2(say, O_CLOEXEC) != 0) {
        enum ps_code code = ps_fail(e, PS_RESOURCE_EXHAUSTED, "no memory to read it into: %s", strerror(errno));
        if (memory >= 0)
            close(memory);
        return code;
    }
    enum ps_code code = hdf5_read_apart(bytes, size, memory, say, e);
    close(say[0]);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    if (code == PS_OK)
        code = ps_safetensors_read(path, file, e);
    close(memory);
    return code;
}

// ---- writing ------------------------------------------------------------------------------------------------------

// Properties of what is made: groups on the way to it; no time of day, so that the same weights make the same bytes.
static hid_t hdf5_list(hid_t class, herr_t (*set)(hid_t, unsigned))
{
    hid_t list = H5Pcreate(class);
    if (list >= 0 && set(list, class == H5P_LINK_CREATE) < 0) {
        H5Pclose(list);
        return -1;
    }
    return list;
}

static herr_t hdf5_set_times(hid_t list, unsigned on)
{
    return H5Pset_obj_track_times(list, on != 0);
}

static bool hdf5_put_array(hid_t file, const struct ps_safetensor *t, hid_t link, hid_t create)
{
    hsize_t dim[PS_MAX_RANK] = {0};
    for (size_t i = 0; i < t->rank; i++)
        dim[i] = t->shape[i];
    hid_t space = H5Screate_simple((int)t->rank, dim, NULL);
    static const int none = 0;
    hid_t stored = t->data ? H5T_IEEE_F32LE : H5T_STD_I32LE, own = t->data ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT;
    const void *data = t->data ? (const void *)t->data : &none;
    hid_t array = H5Dcreate2(file, t->name, stored, space, link, create, H5P_DEFAULT);
    bool whole = array >= 0 && H5Dwrite(array, own, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (array >= 0)
        H5Dclose(array);
    if (space >= 0)
        H5Sclose(space);
    return whole;
}

// Group "vars" is for the model's own variables: it has none, but Keras 2 looks for it.
static bool hdf5_put_all(hid_t file, const struct ps_safetensor *tensor, size_t n)
{
    hid_t link = hdf5_list(H5P_LINK_CREATE, H5Pset_create_intermediate_group);
    hid_t create = hdf5_list(H5P_DATASET_CREATE, hdf5_set_times);
    hid_t own = H5Gcreate2(file, "vars", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool whole = own >= 0 && link >= 0 && create >= 0;
    for (size_t i = 0; whole && i < n; i++)
        whole = hdf5_put_array(file, &tensor[i], link, create);
    if (own >= 0)
        H5Gclose(own);
    if (link >= 0)
        H5Pclose(link);
    if (create >= 0)
        H5Pclose(create);
    return whole && H5Fflush(file, H5F_SCOPE_GLOBAL) >= 0;
}

static bool hdf5_take_image(hid_t file, uint8_t **bytes, size_t *size)
{
    ssize_t n = H5Fget_file_image(file, NULL, 0);
    uint8_t *image = n > 0 ? ps_try_alloc((size_t)n) : NULL;
    if (!image || H5Fget_file_image(file, image, (size_t)n) != n) {
        free(image);
        return false;
    }
    *bytes = image;
    *size = (size_t)n;
    return true;
}

enum ps_code wk_hdf5_write(const struct ps_safetensor *tensor, size_t n, uint8_t **bytes, size_t *size,
                           struct ps_error *e)
{
    hdf5_silence();
    hid_t list = hdf5_in_memory();
    hid_t file = list >= 0 ? H5Fcreate("weights", H5F_ACC_TRUNC, H5P_DEFAULT, list) : -1;
    bool whole = file >= 0 && hdf5_put_all(file, tensor, n) && hdf5_take_image(file, bytes, size);
    if (file >= 0)
        H5Fclose(file);
    if (list >= 0)
        H5Pclose(list);
    return whole ? PS_OK : ps_no_memory(e, "the weights as HDF5");
}
