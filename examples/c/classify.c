/* Classifies a photograph with a .dbq network, without Python:
 *
 *     classify net.dbq photo.ppm [threads]
 *
 * The image is a binary PPM (P6, 8 bits) of exactly the size the network takes; ImageMagick makes one by
 *     convert photo.jpg -resize 224x224^ -gravity center -extent 224x224 photo.ppm
 */
#define _POSIX_C_SOURCE 200112L

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dbq.h"

enum { TOP = 5 };

static void fail(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "classify: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

/* The next number of a PPM header; comments run from # to the end of the line. -1 if there is none. */
static int header_number(FILE* file) {
    int c = getc(file), value = -1;
    while (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '#') {
        if (c == '#')
            while (c != '\n' && c != EOF) c = getc(file);
        else c = getc(file);
    }
    for (; c >= '0' && c <= '9' && value < 100000; c = getc(file))
        value = (value < 0 ? 0 : value) * 10 + c - '0';
    return value; /* one blank after the number is taken, as the format wants it after the last */
}

static unsigned char* read_ppm(const char* path, const dbq_net* net) {
    int height, width, channels;
    dbq_input_shape(net, &height, &width, &channels);
    if (channels != 3) fail("%s takes images of %d channels, a PPM has 3", dbq_name(net), channels);
    FILE* file = fopen(path, "rb");
    if (!file) fail("%s: cannot be opened; give the path of a PPM image", path);
    if (getc(file) != 'P' || getc(file) != '6')
        fail("%s: not a binary PPM; its first bytes must be P6", path);
    const int found_width = header_number(file), found_height = header_number(file);
    if (header_number(file) != 255) fail("%s: not 8 bits a channel; convert it to a maximum of 255", path);
    if (found_width != width || found_height != height)
        fail("%s: %d x %d pixels, %s expects %d x %d (width x height); resize it", path, found_width,
             found_height, dbq_name(net), width, height);
    const size_t size = (size_t)height * (size_t)width * 3;
    unsigned char* image = malloc(size);
    if (!image) fail("not enough memory for %lu bytes", (unsigned long)size);
    if (fread(image, 1, size, file) != size) fail("%s: ends inside the image; copy it again", path);
    fclose(file);
    return image;
}

static double milliseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void print_top(const float* logits, size_t count) {
    size_t best[TOP], found = 0, i, place;
    for (i = 0; i < count; ++i) { /* insertion into a list of at most TOP, the largest first */
        for (place = found; place > 0 && logits[i] > logits[best[place - 1]]; --place)
            if (place < TOP) best[place] = best[place - 1];
        if (place < TOP) best[place] = i;
        if (found < TOP) ++found;
    }
    for (i = 0; i < found; ++i) printf("class %4lu   score %9.4f\n", (unsigned long)best[i], logits[best[i]]);
}

int main(int argc, char** argv) {
    if (argc < 3 || argc > 4) fail("usage: classify net.dbq photo.ppm [threads]");
    dbq_net* net = dbq_load(argv[1]);
    if (!net) fail("%s", dbq_last_error());
    if (argc == 4 && dbq_set_threads(net, atoi(argv[3])) != DBQ_OK) fail("%s", dbq_last_error());

    unsigned char* image = read_ppm(argv[2], net);
    const size_t classes = dbq_output_size(net);
    if (dbq_outputs(net) != 1)
        fail("%s has %d outputs, not one for classes", dbq_name(net), dbq_outputs(net));
    float* logits = malloc(classes * sizeof *logits);
    if (!logits) fail("not enough memory for %lu scores", (unsigned long)classes);
    if (dbq_run(net, image, 1, logits) != DBQ_OK) fail("%s", dbq_last_error()); /* once to warm up */
    const double start = milliseconds();
    if (dbq_run(net, image, 1, logits) != DBQ_OK) fail("%s", dbq_last_error());
    const double taken = milliseconds() - start;

    print_top(logits, classes);
    printf("%s: %.3f ms, %d threads, %s\n", dbq_name(net), taken, dbq_threads(net), dbq_isa(net));
    free(logits);
    free(image);
    dbq_free(net);
    return 0;
}
