/* libdbq: runs .dbq networks. A plain C interface; the only dependency is the C++ runtime.
 *
 *     dbq_net* net = dbq_load("net.dbq");
 *     if (!net) { fprintf(stderr, "%s\n", dbq_last_error()); exit(1); }
 *     float* logits = malloc(dbq_output_size(net) * sizeof *logits);
 *     dbq_run(net, image, 1, logits);
 *     dbq_free(net);
 *
 * A loaded network does not change, so any number of threads may call any function on it at the same
 * time, including dbq_set_threads. Only dbq_free requires that no other call is running.
 *
 * Results are bit-identical on every processor, for any number of threads and any batch size.
 */
#ifndef DBQ_H
#define DBQ_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define DBQ_API __attribute__((visibility("default")))
#else
#define DBQ_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dbq_net dbq_net;

typedef enum dbq_status {
    DBQ_OK = 0,
    DBQ_CANNOT_READ = 1,  /* no such file, or the system refuses to read it */
    DBQ_BAD_FILE = 2,     /* damaged, hostile, or not a .dbq file */
    DBQ_BAD_VERSION = 3,  /* written in a format version this library does not read */
    DBQ_TOO_LARGE = 4,    /* a valid network beyond the limits of the call that loads it */
    DBQ_NO_MEMORY = 5,    /* the system has no more memory or threads */
    DBQ_BAD_ARGUMENT = 6, /* a null pointer, or a number out of range */
    DBQ_BAD_ISA = 7,      /* DBQ_ISA names instructions this processor or build does not have */
    DBQ_INTERNAL = 8,     /* a bug in this library */
    DBQ_CANCELLED = 9     /* dbq_cancel ended the call; its results mean nothing */
} dbq_status;

/* Describe the last call that failed on this thread: what was found, what was expected and what to do, in
 * one line. The text is valid until the next failure. Before any failure: "" and DBQ_OK. */
DBQ_API const char* dbq_last_error(void);
DBQ_API dbq_status dbq_last_status(void);

/* ---- Loading. NULL on failure. -------------------------------------------------------------------- */

/* Uses the best kernels this processor can run, or those the environment variable DBQ_ISA names. */
DBQ_API dbq_net* dbq_load(const char* path);

/* From the bytes of a file, which may be freed after the call. */
DBQ_API dbq_net* dbq_load_memory(const void* data, size_t size);

/* A small file may describe a network that runs for hours. Loading refuses what needs more for one image, on
 * one thread, than these limits; without them, and in the functions above, 10^13 steps and 2 GiB. */
typedef struct dbq_limits {
    uint64_t work;   /* steps, as dbq_work counts them */
    uint64_t memory; /* bytes, as dbq_peak_memory counts them */
} dbq_limits;

DBQ_API dbq_net* dbq_load_limited(const char* path, const dbq_limits* limits); /* NULL: the default */
DBQ_API dbq_net* dbq_load_memory_limited(const void* data, size_t size, const dbq_limits* limits);

DBQ_API void dbq_free(dbq_net* net); /* NULL is allowed */

/* ---- Running -------------------------------------------------------------------------------------- */

/* images: uint8 [count][height][width][channels]; logits: dbq_output_size floats for each image, which are
 * its outputs one behind the other, [channels][height][width] each. Several threads may run one network at
 * the same time: one of them uses the network's thread pool, the others compute on their own thread only. */
DBQ_API dbq_status dbq_run(const dbq_net* net, const uint8_t* images, size_t count, float* logits);

/* Runs one image and writes the time of each layer: dbq_layers numbers. */
DBQ_API dbq_status dbq_profile(const dbq_net* net, const uint8_t* image, double* microseconds);

/* Makes all calls of dbq_run and dbq_profile that run this network now return DBQ_CANCELLED, well within a
 * second. Calls that begin later are not affected. Safe in a signal handler. NULL is allowed. */
DBQ_API void dbq_cancel(dbq_net* net);

/* 1 to 256 threads, including the calling one. The default is 1. */
DBQ_API dbq_status dbq_set_threads(dbq_net* net, int threads);
DBQ_API int dbq_threads(const dbq_net* net);

/* ---- Describing a network. These never fail; strings live as long as the network. Of a NULL network,
 * numbers are 0 and strings are ""; so is dbq_threads. Results that go to NULL are dropped. ---------- */

DBQ_API void dbq_input_shape(const dbq_net* net, int* height, int* width, int* channels);

/* A network has one output or more, known by their names. A plain classifier has one, called "", of shape
 * [classes][1][1]. An index out of range has the name "" and the shape 0, 0, 0. */
DBQ_API int dbq_outputs(const dbq_net* net);
DBQ_API const char* dbq_output_name(const dbq_net* net, int index);
DBQ_API void dbq_output_shape(const dbq_net* net, int index, int shape[3]); /* channels, height, width */
DBQ_API size_t dbq_output_size(const dbq_net* net); /* floats per image, of all outputs */

DBQ_API const char* dbq_name(const dbq_net* net);
DBQ_API const char* dbq_metadata(const dbq_net* net); /* a JSON object */
DBQ_API const char* dbq_isa(const dbq_net* net);      /* "scalar", "generic", "neon", "avx2", ... */

/* Steps for one image: multiply-adds of convolutions, each branch counted, pixels under the windows of pools,
 * and elements of all tensors. */
DBQ_API uint64_t dbq_work(const dbq_net* net);

/* Bytes for running one image with the current number of threads: repacked weights, the arena
 * that all activations share, and scratch space. Batches use one arena per thread. */
DBQ_API size_t dbq_peak_memory(const dbq_net* net);
DBQ_API double dbq_load_milliseconds(const dbq_net* net);

typedef struct dbq_layer {
    const char* name;
    const char* kind;      /* "convolution", "add", ...: as in the format */
    const char* precision; /* of the weights: "2T", "8b"; "" without weights */
    const char* kernel;    /* such as "ternary-table avx2"; "" where nothing runs */
    const char* type;      /* of the (first) output: "u8", "i8", "i32" or "f32" */
    int channels, height, width;
    size_t weight_bytes; /* in memory, repacked for the kernel */
    uint64_t macs;       /* multiply-adds of the convolution, its branches counted once */
} dbq_layer;

/* Layers are the operations of the file, in running order. */
DBQ_API int dbq_layers(const dbq_net* net);
DBQ_API dbq_status dbq_layer_info(const dbq_net* net, int index, dbq_layer* layer);

/* ---- Describing the library ----------------------------------------------------------------------- */

DBQ_API const char* dbq_version(void);
DBQ_API const char* dbq_available_isas(void); /* on this processor, best last: "scalar generic avx2" */

#ifdef __cplusplus
}
#endif

#endif
