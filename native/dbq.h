/* libdbq: runs .dbq networks. Plain C, no dependency but the C++ runtime.
 *
 *     dbq_net* net = dbq_load("net.dbq");
 *     if (!net) { fprintf(stderr, "%s\n", dbq_last_error()); exit(1); }
 *     float* logits = malloc(dbq_output_size(net) * sizeof *logits);
 *     dbq_run(net, image, 1, logits);
 *     dbq_free(net);
 *
 * A network does not change after it was loaded, so any number of threads may call any function on it
 * at the same time, dbq_set_threads included. Only dbq_free needs it alone.
 *
 * Results are the same bits on every processor, with every number of threads, in every batch.
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
    DBQ_BAD_VERSION = 3,  /* of a format this library does not know */
    DBQ_TOO_LARGE = 4,    /* a valid network that needs more than 2 GiB to run */
    DBQ_NO_MEMORY = 5,    /* the system has no more memory or threads */
    DBQ_BAD_ARGUMENT = 6, /* a null pointer, or a number out of range */
    DBQ_BAD_ISA = 7,      /* DBQ_ISA names instructions this processor or build does not have */
    DBQ_INTERNAL = 8      /* a bug in this library */
} dbq_status;

/* Of the last call that failed on this thread: what was found, what was expected and what to do, in one
 * line. The text stays until the next failure. Without any failure: "" and DBQ_OK. */
DBQ_API const char* dbq_last_error(void);
DBQ_API dbq_status dbq_last_status(void);

/* ---- Loading. NULL on failure. -------------------------------------------------------------------- */

/* The kernels are the best this processor has, or those the environment variable DBQ_ISA names. */
DBQ_API dbq_net* dbq_load(const char* path);

/* The bytes of a file. They are not needed after the call. */
DBQ_API dbq_net* dbq_load_memory(const void* data, size_t size);

DBQ_API void dbq_free(dbq_net* net); /* NULL is fine */

/* ---- Running -------------------------------------------------------------------------------------- */

/* images: uint8 [count][height][width][channels]; logits: dbq_output_size floats for each image.
 * Returns DBQ_OK or why not. Several threads may run one network at the same time: one of them has the
 * help of the network's threads, the others compute alone. */
DBQ_API dbq_status dbq_run(const dbq_net* net, const uint8_t* images, size_t count, float* logits);

/* Like dbq_run for one image, and how long each layer took: dbq_layers numbers. */
DBQ_API dbq_status dbq_profile(const dbq_net* net, const uint8_t* image, double* microseconds);

/* The calling thread is one of them. 1 after loading; 1 to 256. */
DBQ_API dbq_status dbq_set_threads(dbq_net* net, int threads);
DBQ_API int dbq_threads(const dbq_net* net);

/* ---- What a network is. These never fail; texts live as long as the network. ---------------------- */

DBQ_API void dbq_input_shape(const dbq_net* net, int* height, int* width, int* channels);

/* Floats for each image. They are [channels][height][width]: for a classifier, one for each class. */
DBQ_API size_t dbq_output_size(const dbq_net* net);
DBQ_API void dbq_output_shape(const dbq_net* net, int* channels, int* height, int* width);

DBQ_API const char* dbq_name(const dbq_net* net);
DBQ_API const char* dbq_metadata(const dbq_net* net); /* a JSON object */
DBQ_API const char* dbq_isa(const dbq_net* net);      /* "scalar" or "avx2" */

/* Bytes for running one image with the current number of threads: weights as the kernels want them,
 * the arena all activations share, and scratch space. Batches use one arena for each thread. */
DBQ_API size_t dbq_peak_memory(const dbq_net* net);
DBQ_API double dbq_load_milliseconds(const dbq_net* net);

typedef struct dbq_layer {
    const char* name;
    const char* kind;      /* "convolution", "add", ...: as in the format */
    const char* precision; /* of the weights: "2T", "8b"; "" without weights */
    const char* kernel;    /* such as "ternary-table avx2"; "" where nothing runs */
    const char* type;      /* of the (first) output: "u8", "i8", "i32" or "f32" */
    int channels, height, width;
    size_t weight_bytes; /* in memory, as the kernel wants them */
    uint64_t macs;       /* multiply-adds of the convolution, its branches counted once */
} dbq_layer;

/* Layers are the operations of the file, in running order. */
DBQ_API int dbq_layers(const dbq_net* net);
DBQ_API dbq_status dbq_layer_info(const dbq_net* net, int index, dbq_layer* layer);

/* ---- What the library is -------------------------------------------------------------------------- */

DBQ_API const char* dbq_version(void);
DBQ_API const char* dbq_available_isas(void); /* on this processor, best last: "scalar avx2" */

#ifdef __cplusplus
}
#endif

#endif
