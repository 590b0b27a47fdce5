/* === tensor === */
/* Tensors are planes of codes in the arena; a plane takes a multiple of four elements. */
enum { U8, I8, I32, F32 };

typedef struct {
    uint32_t at;    /* byte of the arena; of an output (F32): number of the first float */
    uint32_t plane; /* elements from one channel to the next */
    uint16_t channels, height, width;
    uint8_t type;
} tensor_t;

static uint8_t *bytes_of(const tensor_t *t, uint32_t channel) {
    return (uint8_t *)arena + t->at + channel * t->plane;
}

/* === wide: needs tensor === */
static int32_t *words_of(const tensor_t *t, uint32_t channel) {
    return (int32_t *)arena + t->at / 4u + channel * t->plane;
}

/* === code at: needs wide === */
static int32_t code_at(const tensor_t *t, uint32_t channel, uint32_t pixel) {
    if (t->type == I32) {
        return words_of(t, channel)[pixel];
    }
    const uint8_t code = bytes_of(t, channel)[pixel];
    return t->type == U8 ? (int32_t)code : (int32_t)code - ((code & 128u) != 0u ? 256 : 0);
}

/* === put code: needs wide === */
static void put_code(const tensor_t *to, uint32_t channel, uint32_t pixel, int32_t code) {
    if (to->type == I32) {
        words_of(to, channel)[pixel] = code;
    } else {
        bytes_of(to, channel)[pixel] = (uint8_t)code;
    }
}

/* === window === */
typedef struct {
    uint8_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    uint16_t top, left; /* padding */
} window_t;
